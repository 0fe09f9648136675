"""Messages of a topic as people and API clients read and send them."""
