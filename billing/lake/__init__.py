"""Lake: every report of a usage counter and its increment, as Parquet files from which bills can be replayed."""
