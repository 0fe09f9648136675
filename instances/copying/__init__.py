"""Copies of the records of a topic into a new one, carried on in turns by a task."""
