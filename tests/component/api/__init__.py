"""Tests of the API as a whole: its schema, and what a machine finds by reading it."""
