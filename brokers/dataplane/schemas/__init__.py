"""Messages of our own calls, in the form in which kafka-python reads Kafka's."""
