"""Console pages of archives."""
