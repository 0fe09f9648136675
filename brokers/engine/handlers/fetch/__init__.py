"""Fetch by clients and followers, delayed fetches, and where offsets of a log are looked up."""
