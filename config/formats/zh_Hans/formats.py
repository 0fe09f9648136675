"""Differences from Django's Chinese formats: seconds and zone, so that a time can be found in a log."""

DATETIME_FORMAT = "Y年n月j日 H:i:s T"
