"""Tests of the whole API: its routes, and requests generated from its schema."""
