"""Users of an instance, with whom Kafka clients sign in: interfaces to the data plane, names, reads."""
