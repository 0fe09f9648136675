"""The composition root of the control plane: settings, URLs, Celery, the embedded services and the `up` supervisor."""
