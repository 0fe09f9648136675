"""REST API of the fleet, for operators."""
