"""JSON schemas of Penstock's own Kafka calls, in the format of kafka-python."""
