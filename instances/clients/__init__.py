"""Connections of clients to an instance, and the clients of a topic."""
