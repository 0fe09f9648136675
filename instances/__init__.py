"""What a tenant bought and how it lives: instances, operations, topics and allow-lists as the tenant sees them."""
