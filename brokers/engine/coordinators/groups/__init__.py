"""Group coordinator: members of consumer groups, their assignments and their committed offsets (spec G)."""
