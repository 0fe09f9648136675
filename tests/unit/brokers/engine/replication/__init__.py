"""Tests of replication: what a follower requests, decides and appends."""
