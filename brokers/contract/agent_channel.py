"""Name of the PostgreSQL channel on which the control plane wakes agents; the payload is the host's id."""

AGENT_CHANNEL = "penstock_agent"
