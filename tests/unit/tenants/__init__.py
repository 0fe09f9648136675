"""What decides in `tenants`, alone."""
