"""What brokers write down of their clients' administration, on its way into the tenants' audit logs."""
