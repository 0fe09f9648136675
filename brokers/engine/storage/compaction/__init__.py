"""Log compaction: a rewritten log keeps the last record of each key, at its offset (CMP-1 to CMP-31).

`selection` says which log and how far. `run` reads closed segments and writes `.cleaned` files, in a process of its own
(`worker`). `swap` puts those in the place of their sources, and completes after a crash what it had begun.
"""
