"""`up` and `down` as Django lists them; `manage.py` runs both before Django is there."""
