"""Admin client of the data plane: Kafka requests over the internal listener, as the instance's owner or the cluster.

It uses one plain socket per (process, cluster, identity) with kafka-python's message classes: a librdkafka client would
keep several threads and connections for each instance in every web worker.
"""
