"""The fleet: clusters, hosts, broker processes, placement, agent, reconciler; `brokers.engine` is the broker itself."""
