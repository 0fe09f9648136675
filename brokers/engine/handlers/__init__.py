"""Handlers of the Kafka API: one module or folder for each family of calls, above metadata, partitions and accounting.

`session.Session` receives a connection's frames and calls the handler, which `api_table` declares; `context` has the
parameters of a handler. Produce and Fetch use the fast codec and cache topic look-ups per client; all other calls use
the compiled codec.
"""
