"""A whole cluster in one thread: the engine's rooms over a clock, a network, disks and a ZooKeeper that one seed moves.

Nothing here sleeps and nothing happens at the same time, so that the same seed takes the same steps.
"""
