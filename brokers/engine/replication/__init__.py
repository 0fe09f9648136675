"""From the cluster's picture to what this broker does with its replicas."""
