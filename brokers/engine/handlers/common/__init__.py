"""Parts of handlers that several families of calls share."""
