"""Management commands of this package."""
