"""Deployment of the product's programs under a service manager: one table of roles, and a writer for each format.

`roles` is the table, by which `manage.py up` starts its children as well. `systemd`, `compose` and `kubernetes` are the
writers.
"""
