"""Replication: applies the cluster image to the replicas of this broker."""
