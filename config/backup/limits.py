"""Limits of the content of a backup."""

from __future__ import annotations

from typing import Final

# Keys, certificates and passwords. A larger file in `secrets/` is not one of ours.
SECRET_FILE_BYTES_MAX: Final = 1024 * 1024
SECRET_FILES_MAX: Final = 10_000
MANIFEST_BYTES_MAX: Final = 16 * 1024 * 1024
# Maximum number of concurrent requests to ZooKeeper.
IN_FLIGHT_MAX: Final = 500
# The tree is read until two readings are equal, up to this number of readings.
READINGS_MAX: Final = 5
