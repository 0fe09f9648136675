"""The same scripted exchanges against Apache Kafka 3.9.1 (recorded) and against our broker (every test run).

* `play` a client on a raw socket, built on our codec;  `batches` record batches, right and wrong in every way
* `normalise` takes out of an answer what may differ: ids, ports, clocks
* `scripts/` the exchanges, one module per family of calls
* `record` plays them against the real broker and writes `tests/golden/differential/`
* `meant_differences` what we answer otherwise on purpose, each with its reason
"""
