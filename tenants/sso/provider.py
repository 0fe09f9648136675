"""Requests to the identity provider of a tenant: cached documents, bounded in size, time and number.

All of them go through `tenants.outbound`: https, public addresses, no redirects.
"""

from __future__ import annotations

import threading
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from cryptography.fernet import InvalidToken
from django.core.cache import cache

from tenants import outbound
from tenants.errors import Message, gettext_noop
from tenants.limits import (
    SSO_ANSWER_BYTES_MAX,
    SSO_DEADLINE_S,
    SSO_REQUESTS_AT_ONCE_MAX,
    SSO_REQUESTS_PER_TENANT_AT_ONCE_MAX,
)
from tenants.models import SsoConfiguration
from tenants.second_factor.adapter import cipher
from tenants.sso import protocol
from tenants.sso.protocol import Claims, ProviderConfiguration, SsoFailed, UnknownKey

CACHE_TTL_S = 600
# No request is made for this time after a failure: visitors of the sign-in page must not occupy a thread each.
FAILURE_CACHE_TTL_S = 15
# Minimum interval of requests for new keys: forged tokens with invented key ids must not cause a request each.
KEYS_REFRESH_INTERVAL_S = 60

_lock = threading.Lock()
_in_flight: Counter[str] = Counter()


def configuration_of(tenant_id: str, issuer: str, *, is_cached: bool = True) -> ProviderConfiguration:
    """Returns the provider's configuration. Raises `SsoFailed`."""
    url = protocol.configuration_url(issuer)
    document = _document(tenant_id, url, is_cached=is_cached)
    try:
        configuration = protocol.parse_configuration(issuer, document)
        endpoints = [configuration.authorization_endpoint, configuration.token_endpoint, configuration.jwks_uri]
        if configuration.end_session_endpoint:
            endpoints.append(configuration.end_session_endpoint)
        for endpoint in endpoints:
            _require_allowed(endpoint)
    except SsoFailed:
        cache.delete(_key(tenant_id, url))  # the provider may correct it before the document would expire
        raise
    return configuration


def claims_of(sso: SsoConfiguration, *, code: str, redirect_uri: str, verifier: str, nonce: str) -> Claims:
    """Exchanges a code and returns the verified content of the ID token. Raises `SsoFailed`."""
    configuration = configuration_of(sso.tenant_id, sso.issuer)
    body, headers = protocol.token_request(
        configuration, client_id=sso.client_id, secret=secret_of(sso), code=code, redirect_uri=redirect_uri,
        verifier=verifier,
    )  # fmt: skip
    with slot(sso.tenant_id), _translated_errors():
        response = outbound.post(
            configuration.token_endpoint, body, headers,
            bytes_max=SSO_ANSWER_BYTES_MAX, deadline_s=SSO_DEADLINE_S, is_whole=True,
        )  # fmt: skip
    if response.status != outbound.OK:
        detail = Message(
            gettext_noop("The provider refused the sign-in's code (status %(status)s). Check client id and secret."),
            status=response.status,
        )
        raise SsoFailed("code_refused", detail)
    token = protocol.id_token_of(response.body)

    def verified(keys: list[dict[str, Any]]) -> Claims:
        return protocol.verified_claims(
            token, keys, issuer=sso.issuer, client_id=sso.client_id, nonce=nonce, now_s=time.time(),
            assume_email_verified=sso.assume_email_verified,
        )  # fmt: skip

    try:
        return verified(_keys(sso, configuration, is_cached=True))
    except UnknownKey:
        if not cache.add(f"sso_keys_again:{sso.tenant_id}", True, KEYS_REFRESH_INTERVAL_S):
            raise
        return verified(_keys(sso, configuration, is_cached=False))


def secret_of(sso: SsoConfiguration) -> str:
    """Returns the client secret; "" if it cannot be read, after a change of SECRET_KEY without fallback."""
    try:
        return cipher().decrypt(sso.client_secret_sealed.encode()).decode()
    except InvalidToken:
        return ""


def _keys(sso: SsoConfiguration, configuration: ProviderConfiguration, *, is_cached: bool) -> list[dict[str, Any]]:
    return protocol.parse_keys(_document(sso.tenant_id, configuration.jwks_uri, is_cached=is_cached))


def _key(tenant_id: str, url: str) -> str:
    """Returns the cache key of a document. It contains the tenant, so that no tenant gets documents or failures cached
    for another.
    """
    return f"sso_document:{tenant_id}:{outbound.digest_of(url)}"


def _document(tenant_id: str, url: str, *, is_cached: bool) -> str:
    key = _key(tenant_id, url)
    failed_key = f"{key}:failed"
    if is_cached:
        cached = cache.get(key)
        if isinstance(cached, str):
            return cached
        failure = cache.get(failed_key)
        if isinstance(failure, dict):
            raise SsoFailed("provider_unreachable", Message.from_body(failure))
    try:
        with slot(tenant_id), _translated_errors():
            response = outbound.fetch(url, bytes_max=SSO_ANSWER_BYTES_MAX, deadline_s=SSO_DEADLINE_S)
    except SsoFailed as error:
        if error.reason == "provider_unreachable":
            cache.set(failed_key, error.detail.to_body(), FAILURE_CACHE_TTL_S)
        raise
    document = response.decode(errors="replace")
    cache.set(key, document, CACHE_TTL_S)
    cache.delete(failed_key)
    return document


def _require_allowed(url: str) -> None:
    """Raises `SsoFailed` for a URL that is not allowed for requests; browsers are not redirected to it either."""
    with _translated_errors():
        outbound.target_of(url)


@contextmanager
def _translated_errors() -> Iterator[None]:
    try:
        yield
    except outbound.OutboundFailed as error:
        detail = Message(gettext_noop("The identity provider could not be asked. %(why)s"), why=error.detail)
        raise SsoFailed("provider_unreachable", detail) from None


@contextmanager
def slot(tenant_id: str) -> Iterator[None]:
    """Limits requests in flight, so that a slow provider does not occupy all threads of the web process.

    Raises `SsoFailed` if too many are in flight, of the tenant or in total.
    """
    with _lock:
        is_full = _in_flight.total() >= SSO_REQUESTS_AT_ONCE_MAX
        if is_full or _in_flight[tenant_id] >= SSO_REQUESTS_PER_TENANT_AT_ONCE_MAX:
            detail = Message(gettext_noop("Many people sign in at this moment. Try again in a few seconds."))
            raise SsoFailed("busy", detail)
        _in_flight[tenant_id] += 1
    try:
        yield
    finally:
        with _lock:
            _in_flight[tenant_id] -= 1
            if not _in_flight[tenant_id]:
                del _in_flight[tenant_id]
