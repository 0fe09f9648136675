"""Control plane of an agent that joined by a token: HTTPS only, without a database (decision 163)."""
