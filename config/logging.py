"""Structured log lines without secrets."""

from __future__ import annotations

import logging
import re
from typing import Any

import structlog

REDACTED = "[redacted]"
SECRET_KEYS = re.compile(r"password|passwd|secret|token|authorization|cookie|csrf|api_key|sasl", re.IGNORECASE)
# Credentials inside texts: our tokens and invitation links, the sign-in library's links, bearer headers, user info of
# URLs.
SECRET_TEXTS = (
    (re.compile(r"\b(ps[ti]_)[A-Za-z0-9_-]{8,}"), rf"\1{REDACTED}"),
    (re.compile(r"(/(?:reset/key|confirm-email)/)[^/\s'\"?]+"), rf"\1{REDACTED}"),
    (re.compile(r"(?i)\b(bearer|basic)\s+[A-Za-z0-9._~+/=-]{8,}"), rf"\1 {REDACTED}"),
    (re.compile(r"(?<=://)([^\s:/@]*):[^\s@/]+@"), rf"\1:{REDACTED}@"),
)

PLAIN = (str, int, float, bool, type(None))

Event = dict[str, Any]


def redact(_logger: object, _method: str, event: Event) -> Event:
    """Structlog processor that redacts values under secret keys, and credentials inside texts."""
    return {key: value if key == "exc_info" else _clean(key, value) for key, value in event.items()}


def _clean(key: str, value: Any) -> Any:
    if SECRET_KEYS.search(key) and not key.startswith("_"):
        return REDACTED
    if isinstance(value, dict):
        return {inner_key: _clean(str(inner_key), inner) for inner_key, inner in value.items()}
    if isinstance(value, list | tuple):
        return [_clean(key, inner) for inner in value]
    if not isinstance(value, PLAIN):
        value = repr(value)  # for example a request, whose URL may contain an invitation's secret
    if isinstance(value, str):
        for pattern, replacement in SECRET_TEXTS:
            value = pattern.sub(replacement, value)
    return value


def without_traceback(record: logging.LogRecord) -> bool:
    """Filter for errors caused by strangers: removes the traceback, which shows only our code."""
    record.exc_info = None
    return True


def logging_settings(*, level: str, as_json: bool) -> dict[str, Any]:
    """Returns the `LOGGING` dictionary: standard and structlog loggers write the same format to stderr."""
    shared_processors: list[Any] = [
        structlog.contextvars.merge_contextvars,
        structlog.stdlib.add_logger_name,
        structlog.stdlib.add_log_level,
        structlog.processors.TimeStamper(fmt="iso", utc=True),
    ]
    renderer: Any = structlog.processors.JSONRenderer() if as_json else structlog.dev.ConsoleRenderer(colors=False)
    final_processors: list[Any] = [structlog.stdlib.ProcessorFormatter.remove_processors_meta]
    if as_json:
        # Before redaction, so that tracebacks are redacted, too.
        final_processors.append(structlog.processors.format_exc_info)
    final_processors.append(redact)
    structlog.configure(
        processors=[*shared_processors, structlog.stdlib.ProcessorFormatter.wrap_for_formatter],
        logger_factory=structlog.stdlib.LoggerFactory(),
        wrapper_class=structlog.stdlib.BoundLogger,
        cache_logger_on_first_use=True,
    )
    return {
        "version": 1,
        "disable_existing_loggers": False,
        "formatters": {
            "line": {
                "()": structlog.stdlib.ProcessorFormatter,
                "foreign_pre_chain": [*shared_processors, structlog.stdlib.ExtraAdder()],
                "processors": [*final_processors, renderer],
            }
        },
        "filters": {"without_traceback": {"()": lambda: without_traceback}},
        "handlers": {"stderr": {"class": "logging.StreamHandler", "formatter": "line"}},
        "root": {"handlers": ["stderr"], "level": level},
        "loggers": {
            "django.server": {"handlers": ["stderr"], "level": level, "propagate": False},
            "django.security.DisallowedHost": {"filters": ["without_traceback"]},
            "kazoo": {"level": "WARNING"},
            "kafka": {"level": "WARNING"},
            "celery.beat": {"level": "WARNING"},
        },
    }
