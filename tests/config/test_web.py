"""What the web process says of itself, and the headers on every page."""

from __future__ import annotations

import pytest
from django.conf import settings
from django.db import DatabaseError
from django.test import Client, override_settings
from django.urls import reverse

from config import health
from config.embedded.process import free_port


def test_alive_needs_nothing(client: Client) -> None:
    answer = client.get("/healthz")
    assert answer.status_code == 200
    assert answer.json() == {"status": "ok"}


@pytest.mark.django_db
def test_ready_with_every_service(client: Client, redis_url: str, zookeeper_address: str) -> None:
    with override_settings(REDIS_URL=redis_url, ZOOKEEPER_URL=zookeeper_address):
        answer = client.get("/readyz")
    assert answer.status_code == 200
    assert answer.json() == {"ready": True, "reasons": [], "degraded": []}


@pytest.mark.django_db
def test_without_redis_and_zookeeper_it_is_ready_but_degraded(client: Client) -> None:
    nowhere = f"127.0.0.1:{free_port()}"
    with override_settings(REDIS_URL=f"redis://{nowhere}/0", ZOOKEEPER_URL=nowhere):
        answer = client.get("/readyz")
    assert answer.status_code == 200
    assert [reason.split(":")[0] for reason in answer.json()["degraded"]] == ["redis", "zookeeper"]


def test_without_postgres_it_is_not_ready(client: Client, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse() -> None:
        raise DatabaseError("gone")

    monkeypatch.setattr(health, "_ask_postgres", refuse)
    answer = client.get("/readyz")
    assert answer.status_code == 503
    assert answer.json()["ready"] is False
    assert "gone" not in str(answer.json()), "an error's text may hold an address"


def test_metrics_are_in_the_format_of_prometheus(client: Client) -> None:
    answer = client.get("/metrics")
    assert answer.status_code == 200
    assert answer.headers["Content-Type"].startswith("text/plain")
    assert b"process_resident_memory_bytes" in answer.content


def test_tenants_pages_allow_no_inline_script(client: Client) -> None:
    policy = client.get("/healthz").headers["Content-Security-Policy"]
    assert "default-src 'self'" in policy
    assert "unsafe" not in policy
    assert "frame-ancestors 'none'" in policy


@pytest.mark.parametrize("page", ["/operator/", "/api/docs/"])
def test_third_party_pages_still_load_nothing_from_outside(client: Client, page: str) -> None:
    policy = client.get(page).headers["Content-Security-Policy"]
    assert "default-src 'self'" in policy
    assert "http" not in policy


@pytest.mark.django_db
def test_the_documentation_of_the_api_names_no_other_host(client: Client) -> None:
    page = client.get(reverse("api-docs")).content.decode()
    assert "cdn" not in page.lower()


def test_every_page_says_not_to_guess_types_nor_to_frame(client: Client) -> None:
    headers = client.get("/healthz").headers
    assert headers["X-Content-Type-Options"] == "nosniff"
    assert headers["X-Frame-Options"] == "DENY"
    assert headers["Referrer-Policy"] == "same-origin"


def test_cookies_are_for_this_site_and_not_for_scripts() -> None:
    assert settings.SESSION_COOKIE_HTTPONLY
    assert settings.SESSION_COOKIE_SAMESITE == settings.CSRF_COOKIE_SAMESITE == "Lax"
