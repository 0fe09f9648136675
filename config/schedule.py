"""What Celery beat starts, and how often. Every task is safe to run twice."""

from __future__ import annotations

from typing import Any

BEAT_SCHEDULE: dict[str, dict[str, Any]] = {}
