"""What an instance had and used, as bills are made of it."""
