"""Log compaction: a compacted log keeps the last record of each key, at its offset (CMP-1 to CMP-31).

`selection` decides which log is cleaned, and up to which offset. `run` reads closed segments and writes `.cleaned`
files in a separate process (`worker`). `swap` replaces the source segments, and completes an interrupted replacement
after a crash.
"""
