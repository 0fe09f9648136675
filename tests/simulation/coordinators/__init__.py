"""Simulation of groups and transactions on the simulated cluster: coordinators, unreliable clients, and checkers."""
