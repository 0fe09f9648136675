"""REST of billing: plans, quotes, and an instance's usage."""
