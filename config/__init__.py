"""The ground the apps stand on: settings, routes, embedded services and the supervisor behind `manage.py up`."""
