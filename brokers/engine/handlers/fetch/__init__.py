"""The Fetch call of clients and followers, delayed fetches, and look-ups of offsets in logs."""
