"""Differences from Django's English formats: 24 hours, seconds and zone, so that a time can be found in a log."""

DATETIME_FORMAT = "j M Y, H:i:s T"
