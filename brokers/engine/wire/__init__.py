"""Bytes and nothing above them: variable-length integers and checksums. Knows no message, no record, no socket."""
