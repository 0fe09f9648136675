"""REST API of archives."""
