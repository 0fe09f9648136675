"""Redaction of secrets anywhere in a log line."""

from __future__ import annotations

import io
import logging
import logging.config
from collections.abc import Iterator

import pytest
import structlog
from django.test import RequestFactory

from config.logging import REDACTED, logging_settings, redact

SECRET = "psi_" + "a1B2-" * 8


@pytest.fixture()
def written() -> Iterator[io.StringIO]:
    """Returns the output of a logger with the product's formatter."""
    before = structlog.get_config()
    formatter = logging_settings(level="INFO", as_json=True)["formatters"]["line"]
    stream = io.StringIO()
    handler = logging.StreamHandler(stream)
    factory = formatter.pop("()")
    foreign_pre_chain, processors = formatter["foreign_pre_chain"], formatter["processors"]
    handler.setFormatter(factory(processors=processors, foreign_pre_chain=foreign_pre_chain))
    logger = logging.getLogger("tests.redaction")
    logger.handlers, logger.propagate = [handler], False
    yield stream
    # Loggers that were used before keep their processors, which later tests of their output rely on.
    structlog.configure(**before)


def test_the_address_of_a_request_is_written_without_the_secret_in_it(written: io.StringIO) -> None:
    request = RequestFactory().get(f"/join/{SECRET}/")
    logger = logging.getLogger("tests.redaction")
    logger.warning("Not Found: %s", request.path, extra={"request": request, "seen": [SECRET], "n": 1})
    assert SECRET not in written.getvalue()
    assert f"/join/psi_{REDACTED}/" in written.getvalue()


def test_a_traceback_is_written_without_the_secret_in_it(written: io.StringIO) -> None:
    logger = logging.getLogger("tests.redaction")
    try:
        raise ValueError(f"cannot use {SECRET} at postgres://user:hunter2@host/db")
    except ValueError:
        logger.exception("failed")
    assert "ValueError" in written.getvalue()
    assert SECRET not in written.getvalue()
    assert "hunter2" not in written.getvalue()


@pytest.mark.parametrize("key", ["password", "Authorization", "session_cookie", "api_key"])
def test_a_value_under_a_secret_name_is_blanked(key: str) -> None:
    assert redact(None, "info", {key: "value", "other": {"nested_token": "t"}}) == {
        key: REDACTED,
        "other": {"nested_token": REDACTED},
    }
