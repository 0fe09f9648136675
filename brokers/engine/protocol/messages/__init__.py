"""Declarations of all messages of the protocol, one module per family, imported when the first one is used.

The comment above a message has a line for each version that changed it; other versions have the fields of the one
before. "Flexible" means compact lengths and tagged fields from this version on. The names of the fields are Kafka's,
which the documentation, logs and error messages of clients use.
"""
