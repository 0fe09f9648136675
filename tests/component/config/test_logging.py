"""Redaction of secrets in log lines."""

from __future__ import annotations

import pytest
from django.test import Client

from config.logging import REDACTED, redact


@pytest.mark.parametrize("key", ["password", "SASL_PASSWORD", "api_token", "Authorization", "client_secret", "cookie"])
def test_values_under_a_secret_name_are_blanked(key: str) -> None:
    assert redact(None, "info", {key: "hunter2"}) == {key: REDACTED}


def test_nested_values_are_blanked_too() -> None:
    event = {"event": "request", "headers": {"Cookie": "sessionid=1", "Accept": "text/html"}}
    assert redact(None, "info", event)["headers"] == {"Cookie": REDACTED, "Accept": "text/html"}


@pytest.mark.parametrize(
    ("text", "secret"),
    [
        ("Authorization: Bearer abcdefgh12345678", "abcdefgh12345678"),
        ("cannot connect to redis://:s3cret-word@127.0.0.1:6379/0", "s3cret-word"),
        ("postgres://penstock:s3cret-word@db/penstock refused", "s3cret-word"),
        ("Internal Server Error: /accounts/password/reset/key/1-d2x3a4-0123456789abcdef/", "d2x3a4-0123456789abcdef"),
        ("<WSGIRequest: POST '/accounts/password/reset/key/1-d2x3a4-0123456789abcdef/'>", "d2x3a4-0123456789abcdef"),
        ("Not Found: /accounts/confirm-email/MQ:1tXy2z:abcdefgh-1234/", "abcdefgh-1234"),
    ],
)
def test_credentials_inside_texts_are_blanked(text: str, secret: str) -> None:
    cleaned = redact(None, "info", {"event": text})["event"]
    assert secret not in cleaned
    assert REDACTED in cleaned


def test_other_values_stay_as_they_are() -> None:
    event = {"event": "instance running", "instance": "ins-7k2m9qxa", "took_ms": 812}
    assert redact(None, "info", event) == event


def test_a_foreign_host_header_is_one_line_without_a_traceback(
    client: Client, caplog: pytest.LogCaptureFixture
) -> None:
    assert client.get("/", headers={"host": "elsewhere.example"}).status_code == 400
    lines = [record for record in caplog.records if record.name == "django.security.DisallowedHost"]
    assert lines
    assert [line.exc_info for line in lines] == [None] * len(lines)
