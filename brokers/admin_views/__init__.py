"""Pages of the operator panel that are more than a model's."""
