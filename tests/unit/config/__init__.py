"""Tests of the pure decisions of `config`."""
