"""Calls about topics: metadata, creation, deletion, growth."""
