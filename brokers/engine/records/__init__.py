"""The record batch: one layout on the wire and on disk (REC-2). Knows bytes, not files, not frames."""
