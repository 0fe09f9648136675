"""What differs from Django's English formats: 24 hours, seconds and the zone, so that a time can be found in a log."""

DATETIME_FORMAT = "j M Y, H:i:s T"
