"""Schemas of keys and values: Avro and Protocol Buffers, decoded to JSON within limits."""
