"""Consumer groups and transactions of an instance, as its tenant sees them."""
