"""Tests of the pure decisions of `instances`."""
