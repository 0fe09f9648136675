"""Topics of an instance: interfaces to the data plane, allow-lists."""
