"""Differential tests: scripted exchanges with Apache Kafka 3.9.1 (recorded) and with our broker (in every run).

* `play` is a client on a raw socket, built on our codec; `batches` has valid and invalid record batches
* `normalise` removes from an answer what may differ: ids, ports, clocks
* `scripts/` has the exchanges, one module per family of calls
* `record` plays them against the real broker and writes `tests/golden/differential/`
* `meant_differences` has our intended differences, each with its reason
"""
