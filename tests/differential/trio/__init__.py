"""Exchanges with three brokers: recorded of Apache Kafka 3.9.1, played against three of ours in every test run.

Brokers are known by their roles: `A` is the controller, which scripts never stop, `B` and `C` are the others. What a
tenant may ask is asked on a tenant's port, the operator's calls as the cluster's own identity.

* `cluster` the brokers to ask: Apache Kafka's, and what both kinds have in common;  `ours` three processes of ours
* `play` a client for all of them, which calls brokers and leader epochs by their names in the script
* `scripts/` the exchanges;  `record` plays them against Apache Kafka;  `meant_differences` as in the folder above
"""
