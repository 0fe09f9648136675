"""Handlers of the Kafka API: one module or folder for each family of calls, above metadata, partitions and accounting.

`Session` takes a connection's frames, `dispatch` finds the handler, `context` has what a handler may use. Produce and
Fetch use the fast codec and cache topic look-ups per client; all other calls use the compiled codec.
"""
