"""The pages of docs/reference/ that are made of the code: `python -m tests.reference` writes them.

`tests/shape/test_reference.py` compares them with the code. Tables of settings, limits and error codes are imported;
metrics and log events are found in the sources.
"""
