"""Services for operators: hosts, clusters, brokers and rolling restarts, and the job runner that continues long work."""
