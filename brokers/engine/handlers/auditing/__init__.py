"""What requests that administer an instance changed, as the audit log tells it."""
