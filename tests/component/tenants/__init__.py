"""Tests of tenants, and of the conventions of all endpoints."""
