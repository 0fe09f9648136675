"""Supervisor of `manage.py up` and `down`: one process that starts the whole product, monitors and stops it."""
