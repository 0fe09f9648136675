"""Formats of instants in Django's own pages (the operator panel): to the second, with time zone."""
