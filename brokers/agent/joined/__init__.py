"""Agent that joined by a token: it reaches the control plane over HTTPS alone, and needs no database (decision 163)."""
