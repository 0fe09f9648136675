"""Infrastructure of the control plane: ZooKeeper sessions, locks, certificates, log files and child processes."""
