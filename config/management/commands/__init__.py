"""Management commands; `manage.py` runs `up` and `down` before Django is imported."""
