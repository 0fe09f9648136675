"""Tests of real broker processes."""
