"""Routes: the ways into an instance, each with a kind of security, an allow-list and limits of its own."""
