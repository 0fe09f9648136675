"""Logging as JSON lines on stderr, which the agent stores in a file. Secrets are never passed to the log."""

from __future__ import annotations

import json
import logging
import sys
import time
from datetime import UTC, datetime
from typing import Any, Final

import structlog
from structlog.typing import EventDict

from brokers.engine.telemetry.line_limit import LineLimit, truncate_values

# Field of a line with the number of lines that were suppressed before it.
SUPPRESSED: Final = "suppressed_lines"


class _LineLimiter:
    """Line limit for structlog and for `logging`, which libraries use."""

    def __init__(self) -> None:
        self._limit = LineLimit(lambda: time.monotonic_ns() // 1_000_000)

    def __call__(self, _logger: object, _method: str, line: EventDict) -> EventDict:
        """Drops suppressed lines, as a structlog processor, and adds the number of suppressed ones to the others."""
        suppressed = self._limit.admit(str(line.get("event")))
        if suppressed is None:
            raise structlog.DropEvent
        if suppressed:
            line[SUPPRESSED] = suppressed
        return line

    def admits(self, record: logging.LogRecord) -> bool:
        """Filters records of `logging` by their message format, without its arguments."""
        suppressed = self._limit.admit(f"{record.name} {record.msg}")
        if suppressed:
            setattr(record, SUPPRESSED, suppressed)
        return suppressed is not None


def _truncate_values(_logger: object, _method: str, line: EventDict) -> EventDict:
    truncate_values(line)
    return line


class _JsonLines(logging.Formatter):
    """Formatter of records from libraries (kazoo, asyncio) in the format of Penstock's lines."""

    def format(self, record: logging.LogRecord) -> str:
        line: dict[str, Any] = {
            "event": record.getMessage(),
            "logger": record.name,
            "level": record.levelname.lower(),
            "timestamp": datetime.fromtimestamp(record.created, UTC).isoformat(),
        }
        if hasattr(record, SUPPRESSED):
            line[SUPPRESSED] = getattr(record, SUPPRESSED)
        if record.exc_info:
            line["exception"] = self.formatException(record.exc_info)
        truncate_values(line)
        return json.dumps(line)


def configure(broker_id: int) -> None:
    """Configures structlog and `logging` for this process; lines of structlog carry the broker's id."""
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(_JsonLines())
    limiter = _LineLimiter()
    handler.addFilter(limiter.admits)
    logging.basicConfig(level=logging.WARNING, handlers=[handler], force=True)
    structlog.configure(
        processors=[
            limiter,
            structlog.contextvars.merge_contextvars,
            structlog.processors.add_log_level,
            structlog.processors.TimeStamper(fmt="iso", utc=True),
            structlog.processors.format_exc_info,
            _truncate_values,
            structlog.processors.JSONRenderer(),
        ],
        wrapper_class=structlog.make_filtering_bound_logger(logging.INFO),
        logger_factory=structlog.WriteLoggerFactory(file=sys.stderr),
        cache_logger_on_first_use=True,
    )
    structlog.contextvars.bind_contextvars(broker=broker_id)
