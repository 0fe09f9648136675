"""Simulation of a whole cluster in one thread: the engine over a simulated clock, network, disks and ZooKeeper.

Nothing sleeps and nothing runs in parallel, so that a seed always takes the same steps.
"""
