"""Pages of the operator panel beyond those of models."""
