"""Simulation of instances' storage: writers of any speed, lost reports, failing brokers and controllers."""
