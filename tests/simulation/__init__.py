"""Seeded simulator: drives parts of the data plane at random, with a simulated disk and clock.

`python -m tests.simulation` runs it (`make simulate`); the test suites run the same parts with scripted and small
random runs.
"""
