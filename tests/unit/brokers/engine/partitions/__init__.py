"""Tests of partitions and their table."""
