"""What each call of the protocol means here: one file per family, over the image, the partitions and the accounting.

`Session` takes a connection's frames, `dispatch` finds the handler, `context` holds what a handler may use. Produce and
Fetch decode and encode by hand and keep their look-ups per client; all other calls pass through the compiled codec.
"""
