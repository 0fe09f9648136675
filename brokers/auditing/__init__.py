"""Transfer of audit events about clients' administration from brokers into the tenants' audit logs."""
