"""Consumer groups: who is a member, what is assigned, and how far everybody has read (spec G)."""
