"""PySpark job that turns the brokers' usage events into minute rows in PostgreSQL.

One run: stored offsets → plan of ranges → Spark reads and aggregates → one transaction writes rows, counters, offsets.
Spark stores no state on disk: the only checkpoint is the offset stored beside the rows (docs/decisions).
"""
