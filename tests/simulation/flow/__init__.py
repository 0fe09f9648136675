"""Simulation of the flow master: late and lost reports and answers, failing masters and brokers."""
