"""Placement of instances on brokers, the capacity of brokers, and TCP ports of instances."""
