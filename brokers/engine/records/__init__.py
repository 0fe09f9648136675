"""Record batches: one format on the network and on disk (REC-2).

Works on bytes and is independent of files and frames.
"""
