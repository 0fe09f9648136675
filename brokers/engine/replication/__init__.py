"""From the cluster's image to what this broker does with its replicas."""
