"""Tests of the pure decisions of `tenants`."""
