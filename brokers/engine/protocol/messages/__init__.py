"""Every message of the protocol, one module per family, loaded when the first of its messages is met.

Above each message stands one line per version that changed it. Versions not named carry the fields of the one before;
"flexible" means compact lengths and tagged fields from there on. The words for the fields are Kafka's, because clients'
documentation, logs and error messages speak of them.
"""
