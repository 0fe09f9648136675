"""Services for operators: hosts, clusters, brokers and rolling restarts; and the runner of long work."""
