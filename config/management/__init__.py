"""Commands of the ground."""
