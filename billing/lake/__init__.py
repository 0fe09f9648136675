"""The lake: every report of a usage counter, and what it added, as Parquet. Bills are replayed from it."""
