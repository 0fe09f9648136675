"""How Django's own pages (the operator's panel) write instants: to the second, with their time zone."""
