"""The conventions of the REST API, kept in one place for every app, and the tenants app's own endpoints.

An endpoint is a method of an `ApiView` under `@endpoint(...)`; `base.py` shows how. What a caller may rely on is
told in docs/reference/rest-api.md.
"""
