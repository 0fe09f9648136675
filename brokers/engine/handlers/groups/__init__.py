"""Members of groups, and how a handler asks a coordinator."""
