"""Billing: plans, prices, usage rows, invoices, and in `billing.pipeline` the PySpark job that writes usage rows."""
