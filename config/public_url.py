"""Public URL of the console, the prefix of links in mails."""

from __future__ import annotations

import os
from collections.abc import Iterable, Sequence
from typing import Any
from urllib.parse import urlsplit

from django.core.checks import CheckMessage, Error, Tags, Warning, register

LOOPBACK = frozenset({"127.0.0.1", "localhost", "::1", "[::1]"})


def is_loopback(public_url: str) -> bool:
    """True if only this machine reaches that URL."""
    return (urlsplit(public_url).hostname or "localhost") in LOOPBACK


def problem(public_url: str, further_hosts: Iterable[str]) -> str | None:
    """Returns why the web server must not serve these hosts with that URL; None if it may.

    A link to 127.0.0.1 in a mail is useless, and a link derived from a request's Host leads wherever its sender wants.
    """
    beyond = sorted(host for host in further_hosts if host and host not in LOOPBACK)
    if beyond and is_loopback(public_url):
        return f"PENSTOCK_ALLOWED_HOSTS names {', '.join(beyond)}, but PENSTOCK_PUBLIC_URL is not set."
    return None


def further_hosts() -> list[str]:
    """Returns the hosts of `PENSTOCK_ALLOWED_HOSTS`."""
    return [host.strip() for host in os.environ.get("PENSTOCK_ALLOWED_HOSTS", "").split(",") if host.strip()]


@register(Tags.security)
def public_url_is_set(app_configs: Sequence[Any] | None = None, **_: Any) -> list[CheckMessage]:
    """System check that the public URL is set if the console is reachable beyond loopback."""
    from django.conf import settings

    message = problem(settings.PUBLIC_URL, further_hosts())
    hint = "Set PENSTOCK_PUBLIC_URL to the console's address, such as https://console.example.com."
    return [Error(message, hint=hint, id="penstock.E001")] if message else []


@register(Tags.security, deploy=True)
def mail_is_configured(app_configs: Sequence[Any] | None = None, **_: Any) -> list[CheckMessage]:
    """System check of a deployment: without mail, addresses are not verified and passwords cannot be reset."""
    from django.conf import settings

    if settings.MAIL_IS_CONFIGURED or is_loopback(settings.PUBLIC_URL):
        return []
    message = "No mail is configured: e-mail addresses are not verified, and accounts are made by invitation alone."
    if settings.SIGN_UP_IS_OPEN:
        message = (
            "No mail is configured: e-mail addresses are not verified, and sign-up tells which ones have accounts."
        )
    return [Warning(message, hint="Set PENSTOCK_EMAIL_HOST.", id="penstock.W001")]
