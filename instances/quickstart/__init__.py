"""Quickstart of a fresh instance: topic, user, password, sample data and code."""
