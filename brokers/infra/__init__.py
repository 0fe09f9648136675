"""ZooKeeper, locks, certificates and processes of the control plane."""
