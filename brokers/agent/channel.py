"""The name under which PostgreSQL wakes agents; the payload is the host's id."""

CHANNEL = "penstock_agent"
