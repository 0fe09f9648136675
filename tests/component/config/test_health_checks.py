"""Health checks are answered without TLS although other requests are redirected to HTTPS."""

from __future__ import annotations

from typing import Any

import pytest
from django.test import Client


@pytest.mark.django_db()
def test_health_is_answered_in_the_clear_and_pages_are_not(settings: Any) -> None:
    settings.SECURE_SSL_REDIRECT = True
    client = Client()
    assert client.get("/healthz").status_code == 200
    assert client.get("/readyz").status_code in (200, 503)
    for path in ("/", "/api/v1/instances", "/operator/", "/healthz/x", "/metrics"):
        answer = client.get(path)
        assert answer.status_code == 301, path
        assert answer["Location"].startswith("https://")
