"""Users of an instance, as which Kafka clients sign in: interfaces to the data plane, names, reads."""
