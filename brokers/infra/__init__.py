"""ZooKeeper, locks and processes, as the control plane uses them."""
