"""Reconciles instances with their configuration: placed, published, repaired, removed."""
