"""Plans, prices, usage rows and, in `billing.pipeline`, the PySpark job that makes the rows."""
