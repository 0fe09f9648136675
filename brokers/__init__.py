"""Fleet of clusters, hosts and broker processes with placement, agent and reconciler; `brokers.engine` is
the broker.
"""
