"""Authentication of clients, their users and access rules."""
