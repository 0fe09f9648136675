"""Conventions of the REST API for every app, and the endpoints of the tenants app.

An endpoint is a method of an `ApiView` under `@endpoint(...)`; `base.py` has an example. The guarantees for callers are
documented in docs/reference/rest-api.md.
"""
