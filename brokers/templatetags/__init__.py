"""Template tags of the operator's pages."""
