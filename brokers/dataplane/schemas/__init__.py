"""Messages of our own API keys in the format of kafka-python."""
