"""Archives: a topic of a tenant's as Parquet at an address of the tenant's, each record once.

One run: stored offsets → plan of ranges → one Spark task for each partition reads and writes files → one transaction
has the rows of the files and the next offsets (docs/decisions/0120).
"""
