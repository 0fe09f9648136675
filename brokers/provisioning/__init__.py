"""Makes instances what they are wanted to be: placed, published, repaired, removed."""
