"""Variable-length integers and checksums, on which protocol messages and records are built."""
