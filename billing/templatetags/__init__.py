"""Template tags of the operator pages about money."""
