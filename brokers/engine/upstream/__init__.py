"""Gateway in front of another Kafka cluster, the upstream: `python -m brokers.engine.upstream` (decision 171).

* `settings`: the settings file;  `gateway`: the process;  `node`: the listeners in front of one upstream broker
* `session`: requests of one client, from frame to response;  `call`: one request on its way upstream and back
* `topic_calls`, `group_calls`, `transaction_calls`: authorisation and filtering of each call, in the table `calls`
* `connection`: a client's connection to the upstream broker;  `versions`: the calls and versions that are served
"""
