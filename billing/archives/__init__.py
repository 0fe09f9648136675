"""Archives: a topic of a tenant as Parquet files at an address of the tenant, each record exactly once.

One run: stored offsets → plan of ranges → one Spark task for each partition reads and writes files → one transaction
writes the rows of the files and the next offsets (docs/decisions/0120).
"""
