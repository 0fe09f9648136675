"""Parsing and verification of an identity provider's documents, and its URLs. Without network or database.

The ID token is verified here although it comes over TLS from the provider: its signature against the provider's keys,
issuer, audience, expiry, age and nonce (OpenID Connect Core 1.0, 3.1.3.7).
"""

from __future__ import annotations

import base64
import hashlib
import hmac
import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Final
from urllib.parse import quote, urlencode

import jwt

from tenants.choices import Role
from tenants.errors import Message, gettext_noop
from tenants.limits import SSO_CLAIM_VALUES_MAX, SSO_KEYS_MAX, SSO_STARTED_MINUTES, SSO_TEXT_CHARS_MAX

# Asymmetric algorithms only: with HMAC the client secret would sign, and `none` signs nothing.
ALGORITHMS: Final = ("RS256", "RS384", "RS512", "PS256", "PS384", "PS512", "ES256", "ES384", "ES512", "EdDSA")
KEY_TYPES: Final = {"RS": "RSA", "PS": "RSA", "ES": "EC", "Ed": "OKP"}
SCOPES: Final = "openid email profile"
LEEWAY_S: Final = 60
SUBJECT_CHARS_MAX: Final = 255
EMAIL_CHARS_MAX: Final = 254
# Numbers of an RSA key in base64url: 8192 bits, and an exponent of 32 bits. Longer ones are slow to verify.
RSA_MODULUS_CHARS_MAX: Final = 1_366
RSA_EXPONENT_CHARS_MAX: Final = 6
# If several mapped roles are claimed, the first of these counts.
RANKED_ROLES: Final = (Role.ADMIN, Role.DEVELOPER, Role.FINANCE, Role.VIEWER)


class SsoFailed(Exception):
    """Sign-in that did not succeed. `reason` is for the audit log; `detail` is shown."""

    def __init__(self, reason: str, detail: Message) -> None:
        super().__init__(detail)
        self.reason, self.detail = reason, detail


class UnknownKey(SsoFailed):
    """No key of the set can have signed the token; the provider may have new keys."""

    def __init__(self) -> None:
        super().__init__("unknown_key", Message(gettext_noop("The provider's token is signed with an unknown key.")))


@dataclass(frozen=True, slots=True)
class ProviderConfiguration:
    """Values of a provider's discovery document that are used."""

    issuer: str
    authorization_endpoint: str
    token_endpoint: str
    jwks_uri: str
    end_session_endpoint: str  # "" if the provider has no logout for clients
    sends_secret_in_body: bool


@dataclass(frozen=True, slots=True)
class Claims:
    """Verified content of an ID token."""

    subject: str
    email: str  # ASCII, lower case; "" unless the provider says that it is verified
    name: str
    raw: Mapping[str, Any]
    id_token: str


def configuration_url(issuer: str) -> str:
    """Returns the URL of the discovery document."""
    return issuer.removesuffix("/") + "/.well-known/openid-configuration"


def parse_configuration(issuer: str, document: str | bytes) -> ProviderConfiguration:
    """Parses a discovery document. Raises `SsoFailed`."""
    values_by_name = _json_object(document)
    names = ("issuer", "authorization_endpoint", "token_endpoint", "jwks_uri")
    values = [values_by_name.get(name) for name in names]
    if not all(isinstance(value, str) and 0 < len(value) <= SSO_TEXT_CHARS_MAX for value in values):
        raise _bad_configuration()
    if values[0] != issuer:
        detail = Message(gettext_noop("The provider names another issuer. Enter the issuer exactly as it names it."))
        raise SsoFailed("other_issuer", detail)
    methods = values_by_name.get("token_endpoint_auth_methods_supported", ["client_secret_basic"])
    if not isinstance(methods, list):
        raise _bad_configuration()
    end_session_endpoint = values_by_name.get("end_session_endpoint") or ""
    if not isinstance(end_session_endpoint, str) or len(end_session_endpoint) > SSO_TEXT_CHARS_MAX:
        raise _bad_configuration()
    in_body = "client_secret_post" in methods and "client_secret_basic" not in methods
    return ProviderConfiguration(issuer, str(values[1]), str(values[2]), str(values[3]), end_session_endpoint, in_body)


def parse_keys(document: str | bytes) -> list[dict[str, Any]]:
    """Returns the signing keys of a key set. Raises `SsoFailed`."""
    keys = _json_object(document).get("keys")
    if not isinstance(keys, list) or len(keys) > SSO_KEYS_MAX:
        raise _bad_configuration()
    return [key for key in keys if isinstance(key, dict) and key.get("use", "sig") == "sig" and _is_short(key)]


def _is_short(key: Mapping[str, Any]) -> bool:
    if key.get("kty") != "RSA":
        return True
    modulus, exponent = str(key.get("n", "")), str(key.get("e", ""))
    return len(modulus) <= RSA_MODULUS_CHARS_MAX and len(exponent) <= RSA_EXPONENT_CHARS_MAX


def code_challenge(verifier: str) -> str:
    """Returns the S256 challenge of a PKCE verifier (RFC 7636)."""
    return base64.urlsafe_b64encode(hashlib.sha256(verifier.encode()).digest()).rstrip(b"=").decode()


def authorization_url(
    configuration: ProviderConfiguration,
    *,
    client_id: str,
    redirect_uri: str,
    state: str,
    nonce: str,
    verifier: str,
    prompt_login: bool,
) -> str:
    """Returns the URL at the provider to which the browser is sent."""
    query = {
        "response_type": "code", "client_id": client_id, "redirect_uri": redirect_uri, "scope": SCOPES,
        "state": state, "nonce": nonce, "code_challenge": code_challenge(verifier), "code_challenge_method": "S256",
    }  # fmt: skip
    if prompt_login:
        query["prompt"] = "login"
    separator = "&" if "?" in configuration.authorization_endpoint else "?"
    return configuration.authorization_endpoint + separator + urlencode(query)


def logout_url(configuration: ProviderConfiguration, *, client_id: str, id_token: str, redirect_uri: str) -> str | None:
    """Returns the URL at the provider where its own session ends (OpenID Connect RP-Initiated Logout 1.0); None if it
    has none.
    """
    if not configuration.end_session_endpoint:
        return None
    query = {"client_id": client_id, "post_logout_redirect_uri": redirect_uri}
    if id_token:
        query["id_token_hint"] = id_token
    separator = "&" if "?" in configuration.end_session_endpoint else "?"
    return configuration.end_session_endpoint + separator + urlencode(query)


def token_request(
    configuration: ProviderConfiguration, *, client_id: str, secret: str, code: str, redirect_uri: str, verifier: str
) -> tuple[bytes, dict[str, str]]:
    """Returns body and headers of the request that exchanges a code."""
    form = {"grant_type": "authorization_code", "code": code, "redirect_uri": redirect_uri, "code_verifier": verifier}
    headers = {"Content-Type": "application/x-www-form-urlencoded"}
    if configuration.sends_secret_in_body:
        form |= {"client_id": client_id, "client_secret": secret}
    else:
        pair = f"{quote(client_id, safe='')}:{quote(secret, safe='')}"
        headers["Authorization"] = "Basic " + base64.b64encode(pair.encode()).decode()
    return urlencode(form).encode(), headers


def id_token_of(document: str | bytes) -> str:
    """Returns the ID token of a token response. Raises `SsoFailed`."""
    token = _json_object(document).get("id_token")
    if not isinstance(token, str):
        raise SsoFailed("no_id_token", Message(gettext_noop("The provider sent no ID token.")))
    return token


def verified_claims(
    token: str,
    keys: Iterable[Mapping[str, Any]],
    *,
    issuer: str,
    client_id: str,
    nonce: str,
    now_s: float,
    assume_email_verified: bool = False,
) -> Claims:
    """Returns the content of a valid ID token. Raises `UnknownKey` and `SsoFailed`."""
    bad = SsoFailed("bad_token", Message(gettext_noop("The provider's token is not valid for this sign-in.")))
    try:
        header = jwt.get_unverified_header(token)
        algorithm = header.get("alg")
        if algorithm not in ALGORITHMS:
            raise bad
        key = _key_for(keys, header.get("kid"), str(algorithm))
        raw = jwt.decode(
            token,
            jwt.PyJWK(dict(key), str(algorithm)),
            algorithms=[str(algorithm)],
            audience=client_id,
            issuer=issuer,
            leeway=LEEWAY_S,
            options={"require": ["iss", "sub", "aud", "exp", "iat"]},
        )
        is_ours = _is_issued_to_us(raw, client_id) and _is_fresh(raw, now_s) and _has_nonce(raw, nonce)
    except (jwt.PyJWTError, ValueError, TypeError, OverflowError, RecursionError):
        raise bad from None
    subject = raw["sub"]
    if not is_ours or not isinstance(subject, str) or not _is_text(subject, SUBJECT_CHARS_MAX):
        raise bad
    name = raw.get("name")
    email = _verified_email(raw, assume_email_verified)
    return Claims(subject, email, name.strip() if isinstance(name, str) else "", raw, token)


def _verified_email(raw: Mapping[str, Any], is_assumed: bool) -> str:
    """Returns the address that the provider calls verified, or "". If `is_assumed`, a token without `email_verified`
    counts as one that calls it verified.

    An address with other characters than ASCII does not count, because its lower case may be another person's address.
    """
    email = raw.get("email")
    if raw.get("email_verified", is_assumed) is not True or not isinstance(email, str) or not email.isascii():
        return ""
    return email.strip().lower() if _is_text(email, EMAIL_CHARS_MAX) else ""


def _key_for(keys: Iterable[Mapping[str, Any]], kid: object, algorithm: str) -> Mapping[str, Any]:
    """Returns the key that signed: by `kid`, or the only one of its kind without it. Raises `UnknownKey`."""
    kind = KEY_TYPES[algorithm[:2]]
    candidates = [key for key in keys if key.get("kty") == kind and key.get("alg", algorithm) == algorithm]
    if kid is not None:
        candidates = [key for key in candidates if key.get("kid") == kid]
    if len(candidates) != 1:
        raise UnknownKey
    return candidates[0]


def _is_issued_to_us(raw: Mapping[str, Any], client_id: str) -> bool:
    """False for a token that was issued to another client and has us as a further audience."""
    is_for_several = isinstance(raw["aud"], list) and len(raw["aud"]) > 1
    return raw.get("azp") == client_id if "azp" in raw or is_for_several else True


def _is_fresh(raw: Mapping[str, Any], now_s: float) -> bool:
    issued_at_s = float(raw["iat"])
    return now_s - SSO_STARTED_MINUTES * 60 - LEEWAY_S <= issued_at_s <= now_s + LEEWAY_S


def _has_nonce(raw: Mapping[str, Any], nonce: str) -> bool:
    return hmac.compare_digest(str(raw.get("nonce", "")).encode(), nonce.encode())


def claimed_role(raw: Mapping[str, Any], claim: str, roles: Mapping[str, str]) -> Role | None:
    """Returns the highest role that the claim's values give; None without one. Raises `SsoFailed` for too many values.

    A claim with dots is first looked up as it is, then as a path into objects (`realm_access.roles`).
    """
    values = _claim_value(raw, claim)
    if isinstance(values, str):
        values = [values]
    if not isinstance(values, list):
        return None
    if len(values) > SSO_CLAIM_VALUES_MAX:
        detail = Message(
            gettext_noop("The role claim has more than %(n)s values. Let the provider send fewer."),
            n=SSO_CLAIM_VALUES_MAX,
        )
        raise SsoFailed("too_many_roles", detail)
    claimed = {roles[value] for value in values if isinstance(value, str) and value in roles}
    return next((role for role in RANKED_ROLES if role.value in claimed), None)


def _claim_value(raw: Mapping[str, Any], claim: str) -> Any:
    if claim in raw:
        return raw[claim]
    value: Any = raw
    for part in claim.split("."):
        if not isinstance(value, Mapping):
            return None
        value = value.get(part)
    return value


def domain_of(email: str) -> str:
    """Returns the part of an address behind its last @."""
    return email.rpartition("@")[2]


def _is_text(value: str, chars_max: int) -> bool:
    return 0 < len(value) <= chars_max and value.isprintable()


def _json_object(document: str | bytes) -> dict[str, Any]:
    try:
        parsed = json.loads(document)
    except (ValueError, RecursionError):
        raise _bad_configuration() from None
    if not isinstance(parsed, dict):
        raise _bad_configuration()
    return parsed


def _bad_configuration() -> SsoFailed:
    return SsoFailed("bad_document", Message(gettext_noop("The provider's answer cannot be understood.")))
