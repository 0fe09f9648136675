"""`manage.py up` and `down`: one process that starts the whole product, watches it, and takes it down again."""
