"""Simulation of placement: instances that come and go on a fleet in three zones, and brokers that fall silent."""
