"""Operators' long work on a cluster: its membership, rolling restarts, and who carries them on."""
