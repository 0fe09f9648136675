"""The admin client to the data plane: Kafka calls over the internal listener, as the instance's owner or as the
cluster.

One plain socket per (process, cluster, identity), with kafka-python's message classes: a librdkafka client would keep
several threads and connections for each instance, in every web worker.
"""
