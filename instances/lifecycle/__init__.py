"""Phases of an instance and the operations that change them."""
