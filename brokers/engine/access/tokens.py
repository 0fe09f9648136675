"""Verification of bearer tokens: JSON Web Tokens (RFC 7519) signed by an instance's authorization server.

PyJWT verifies signatures; this module chooses algorithm and key, and checks the claims. Pure. A verification takes up
to some milliseconds, so it must not run on the event loop.

The messages of OAUTHBEARER (RFC 7628, KIP-255) that contain tokens are parsed as Apache Kafka's
OAuthBearerClientInitialResponse does; extensions are parsed and ignored, like in Kafka's own handler.
"""

from __future__ import annotations

import hmac
import json
import math
import re
from base64 import urlsafe_b64decode
from collections import OrderedDict
from dataclasses import dataclass, field
from typing import Any, Final

from jwt import PyJWTError
from jwt.api_jws import PyJWS

from brokers.contract import paths
from brokers.contract.oauth import OAuthDocument, OAuthTerms
from brokers.contract.users import RESERVED_NAMES, USER_NAME_BYTES_MAX
from brokers.engine.access.sasl import SaslFailed
from instances.oauth.key_sets import ALGORITHMS, PublicKey
from instances.oauth.limits import KEY_ID_BYTES_MAX, TOKEN_BYTES_MAX

# Cached key objects of one broker; dropped ones are built again when needed.
BUILT_KEYS_MAX: Final = 512
# Remembered tokens of one broker; beyond, the one that was verified longest ago is dropped.
PROVEN_TOKENS_MAX: Final = 20_000
# The end of the year 9999, to which later expiry times are cut.
_EXPIRY_S_MAX: Final = 253_402_300_799
_JWS: Final = PyJWS()
# Sent instead of an error; the client replies with `REFUSAL_CONFIRMATION` and then gets the error.
INVALID_TOKEN_REPLY: Final = b'{"status":"invalid_token"}'
REFUSAL_CONFIRMATION: Final = b"\x01"
_AUTH: Final = "auth"
_BEARER: Final = "bearer"
_SASLNAME: Final = r"(?:[\x01-\x2b\x2d-\x3c\x3e-\x7f]|=2C|=3D)+"
_PAIRS: Final = r"(?:[A-Za-z]+=[\x21-\x7e \t\r\n]+\x01)*"
_MESSAGE: Final = re.compile(rf"n,(?:a=(?P<identity>{_SASLNAME}))?,\x01(?P<pairs>{_PAIRS})\x01")
_CREDENTIALS: Final = re.compile(r"(?P<scheme>\w+) +(?P<token>[-_~+/.a-zA-Z0-9]+=*)")


class TokenRefused(Exception):
    """A token is refused. The message is for the owner of the instance and for the log; it has no part of the token."""


class UnknownKey(TokenRefused):
    """The key that the token names is not in the instance's key set."""


@dataclass(frozen=True, slots=True)
class VerifiedToken:
    """A verified token; `name` is the user that it proves."""

    name: str
    expires_at_ms: int
    terms: OAuthTerms


class TokenVerifier:
    """Verifier of tokens with a cache of key objects; used by one thread."""

    __slots__ = ("_built_keys",)

    def __init__(self) -> None:
        self._built_keys: OrderedDict[PublicKey, Any] = OrderedDict()

    def verify(self, token: str, document: OAuthDocument, now_ms: int) -> VerifiedToken:
        """Verifies the signature and the claims of a token.

        Raises:
            TokenRefused: the token is not valid for this instance.
        """
        header = _decode_object(token.split(".", 1)[0], "its header")
        algorithm = header.get("alg")
        if not isinstance(algorithm, str) or algorithm not in ALGORITHMS:
            raise TokenRefused("its algorithm is not supported")
        if "crit" in header:
            raise TokenRefused("its header has critical extensions, which are not understood")
        key = self._get_or_build(_choose_key(document, header.get("kid"), algorithm))
        try:
            payload = _JWS.decode(token, key, algorithms=[algorithm])
        except (PyJWTError, ValueError, TypeError, RecursionError):
            raise TokenRefused("its signature is wrong") from None
        return _check_claims(_parse_object(payload, "its claims"), document, now_ms)

    def _get_or_build(self, key: PublicKey) -> Any:
        built = self._built_keys.get(key)
        if built is None:
            try:
                built = self._built_keys[key] = key.build()
            except ValueError as error:
                raise TokenRefused(str(error)) from None
            if len(self._built_keys) > BUILT_KEYS_MAX:
                self._built_keys.popitem(last=False)
        return built


def _choose_key(document: OAuthDocument, id: object, algorithm: str) -> PublicKey:
    """Returns the key that a token names or, if it names none, the only key that fits its algorithm."""
    if id is None:
        matching_keys = [key for key in document.keys if algorithm in key.algorithms]
        if len(matching_keys) != 1:
            raise TokenRefused("it names no key, and not exactly one key fits its algorithm")
        return matching_keys[0]
    if not isinstance(id, str) or len(id.encode("utf-8", "replace")) > KEY_ID_BYTES_MAX:
        raise TokenRefused("its key id is not valid")
    key = next((key for key in document.keys if key.id == id), None)
    if key is None:
        raise UnknownKey("the key that it names is not in the key set")
    if algorithm not in key.algorithms:
        raise TokenRefused("its key does not allow its algorithm")
    return key


def _check_claims(claims: dict[str, Any], document: OAuthDocument, now_ms: int) -> VerifiedToken:
    now_s, skew_s = now_ms / 1000, document.clock_skew_s
    if claims.get("iss") != document.issuer:
        raise TokenRefused("it is from another issuer")
    audience = claims.get("aud")
    if document.audience not in (audience if isinstance(audience, list) else [audience]):
        raise TokenRefused("it is for another audience")
    expires_s = _time_claim_s(claims, "exp")
    if expires_s + skew_s <= now_s:
        raise TokenRefused("it has expired")
    issued_s = _time_claim_s(claims, "iat")
    if expires_s < issued_s:
        raise TokenRefused("it expired before it was made")
    if issued_s - skew_s > now_s:
        raise TokenRefused("it was made in the future")
    if "nbf" in claims and _time_claim_s(claims, "nbf") - skew_s > now_s:
        raise TokenRefused("it is not valid yet")
    name = _user_name(claims.get(document.principal_claim))
    return VerifiedToken(name, int(min(expires_s, _EXPIRY_S_MAX) * 1000), document.terms)


def _time_claim_s(claims: dict[str, Any], name: str) -> float:
    value = claims.get(name)
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise TokenRefused(f"its claim {name} is not a time")
    try:
        instant = float(value)
    except OverflowError:
        instant = math.inf
    if not math.isfinite(instant):
        raise TokenRefused(f"its claim {name} is not a time")
    return instant


def _user_name(value: object) -> str:
    """Returns the claim that names the user, if it is a valid user name."""
    if not isinstance(value, str) or not value or value != value.strip() or not value.isprintable():
        raise TokenRefused("the claim that should name the user is missing or not a name")
    # The length is checked before escaping, because the claim may have thousands of characters.
    if value in RESERVED_NAMES or max(len(value), len(paths.sanitise(value))) > USER_NAME_BYTES_MAX:
        raise TokenRefused("the claim that should name the user has a name that no user may have")
    return value


def _decode_object(text: str, part: str) -> dict[str, Any]:
    try:
        raw = urlsafe_b64decode(text + "=" * (-len(text) % 4))
    except ValueError:
        raise TokenRefused(f"{part} cannot be read") from None
    return _parse_object(raw, part)


def _parse_object(raw: bytes, part: str) -> dict[str, Any]:
    try:
        parsed = json.loads(raw)
    except (ValueError, RecursionError):
        raise TokenRefused(f"{part} cannot be read") from None
    if not isinstance(parsed, dict):
        raise TokenRefused(f"{part} is not a JSON object")
    return parsed


class ProvenTokens:
    """Cache of verified tokens by keyed hashes, so that a client that reconnects with one costs only a hash."""

    __slots__ = ("_key", "_proven")

    def __init__(self, key: bytes) -> None:
        """Makes an empty cache with a random `key`, which no other process knows."""
        self._key = key
        # By digest of a token: the verified token and the fingerprint of the instance's OAuth configuration. After a
        # change of the configuration or the keys, tokens are verified again.
        self._proven: OrderedDict[bytes, tuple[VerifiedToken, bytes]] = OrderedDict()

    def find(self, token: str, document: OAuthDocument, now_ms: int) -> VerifiedToken | None:
        proven = self._proven.get(self._digest(token))
        if proven is None or proven[1] != document.fingerprint or proven[0].expires_at_ms <= now_ms:
            return None
        return proven[0]

    def record(self, token: str, document: OAuthDocument, verified: VerifiedToken) -> None:
        digest = self._digest(token)
        self._proven[digest] = verified, document.fingerprint
        self._proven.move_to_end(digest)
        if len(self._proven) > PROVEN_TOKENS_MAX:
            self._proven.popitem(last=False)

    def __len__(self) -> int:
        return len(self._proven)

    def _digest(self, token: str) -> bytes:
        return hmac.digest(self._key, token.encode(), "sha256")


@dataclass(frozen=True, slots=True)
class BearerMessage:
    """First message of a client. `identity` is the user that it requests to act as, "" for the one in the token."""

    identity: str
    token: str = field(repr=False)


def parse_bearer_message(message: bytes) -> BearerMessage:
    """Parses the first message of a client.

    Raises:
        SaslFailed: the message is malformed.
    """
    if len(message) > TOKEN_BYTES_MAX:
        raise SaslFailed(f"the message has more than {TOKEN_BYTES_MAX} bytes")
    match = _MESSAGE.fullmatch(message.decode("utf-8", "replace"))
    if match is None:
        raise SaslFailed("the message is not a valid OAUTHBEARER message")
    pairs = dict(pair.split("=", 1) for pair in match["pairs"].split("\x01")[:-1])
    credentials = _CREDENTIALS.fullmatch(pairs.get(_AUTH, ""))
    if credentials is None or credentials["scheme"].lower() != _BEARER:
        raise SaslFailed("the message has no bearer token")
    # Kafka compares the identity as it is written, without resolving its escapes.
    return BearerMessage(match["identity"] or "", credentials["token"])
