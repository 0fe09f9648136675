"""Basis of the apps: settings, routes, embedded services and the supervisor behind `manage.py up`."""
