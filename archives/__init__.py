"""Archives: a topic of a tenant as Parquet files or rows at an address of the tenant, each record exactly once.

One run: stored offsets → plan of ranges → one Spark task for each partition reads and writes files → one transaction
writes the rows of the files and the next offsets (docs/decisions/0120). In a database of the tenant, records and next
offset are one transaction there (docs/decisions/0158).
"""
