"""Version of this Penstock, as `manage.py --version`, backups, images and hosts show it."""

from __future__ import annotations

from typing import Final

# The same as in pyproject.toml and of the newest release in the CHANGELOG (tests/shape/test_version.py).
VERSION: Final = "0.1.0"
