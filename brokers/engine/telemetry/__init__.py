"""How the process shows itself: log lines, metrics, and the admin port."""
