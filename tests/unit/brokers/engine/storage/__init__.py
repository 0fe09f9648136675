"""Tests of the log on disk."""
