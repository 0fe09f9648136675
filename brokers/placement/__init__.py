"""Which brokers an instance is placed on, what they can still sell, and its TCP ports."""
