"""Groups and transactions on the simulated cluster: the engine's coordinators, clients that come and go, and checkers
that know what was promised.
"""
