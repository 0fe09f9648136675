"""Instances, their topics and operations over REST."""
