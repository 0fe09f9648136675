"""Tests of tenants, and of the conventions every endpoint keeps."""
