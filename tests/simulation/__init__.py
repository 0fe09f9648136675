"""The seeded simulator: parts of the data plane driven at random, with a disk and a clock that obey the test.

`python -m tests.simulation` runs it (`make simulate`); the suites run the same parts over scripted and small random
runs.
"""
