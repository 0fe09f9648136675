"""What several families of calls share."""
