"""JSON Web Key Sets (RFC 7517): the keys of a set that may verify tokens, with their algorithms. Pure.

Only public asymmetric keys are accepted. The key set of an authorization server may have keys for other purposes, which
are left out; in a pinned key set such a key is an error.
"""

from __future__ import annotations

import hashlib
import json
import re
from base64 import urlsafe_b64decode
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from jwt import PyJWTError
from jwt.algorithms import ECAlgorithm, OKPAlgorithm, RSAAlgorithm

from instances.oauth.limits import (
    KEY_ID_BYTES_MAX,
    KEY_SET_BYTES_MAX,
    KEYS_PER_SET_MAX,
    RSA_EXPONENT_BITS_MAX,
    RSA_KEY_BITS_MAX,
    RSA_KEY_BITS_MIN,
)

RSA_ALGORITHMS: Final = ("RS256", "RS384", "RS512", "PS256", "PS384", "PS512")
ALGORITHM_OF_CURVE: Final[Mapping[tuple[str, str], str]] = {
    ("EC", "P-256"): "ES256",
    ("EC", "P-384"): "ES384",
    ("EC", "P-521"): "ES512",
    ("OKP", "Ed25519"): "EdDSA",
    ("OKP", "Ed448"): "EdDSA",
}
# RFC 9864's names of EdDSA with either curve.
_ALGORITHM_SYNONYMS: Final[Mapping[str, str]] = {"Ed25519": "EdDSA", "Ed448": "EdDSA"}
ALGORITHMS: Final = frozenset((*RSA_ALGORITHMS, *ALGORITHM_OF_CURVE.values()))
_PUBLIC_MEMBERS: Final[Mapping[str, tuple[str, ...]]] = {
    "RSA": ("n", "e"),
    "EC": ("crv", "x", "y"),
    "OKP": ("crv", "x"),
}
# base64url, or the name of a curve. Python's own decoder skips characters outside the alphabet.
_MEMBER_VALUE: Final = re.compile(r"[A-Za-z0-9_-]+=*")
_PRIVATE_MEMBERS: Final = frozenset({"d", "p", "q", "dp", "dq", "qi", "oth", "k"})
_KEY_BUILDERS: Final[Mapping[str, Any]] = {"RSA": RSAAlgorithm, "EC": ECAlgorithm, "OKP": OKPAlgorithm}


def gettext_noop(text: str) -> str:
    """Returns the text: marks it for the catalog as Django's function does, which the broker does not import."""
    return text


class KeySetRefused(ValueError):
    """The key set cannot be used.

    `msgid` with `values` is the message for the author of the key set. The value `why`, if there is one, is the
    `KeySetRefused` of one of its keys.
    """

    def __init__(self, msgid: str, **values: object) -> None:
        super().__init__(msgid % values if values else msgid)
        self.msgid, self.values = msgid, values


@dataclass(frozen=True, slots=True, kw_only=True)
class PublicKey:
    """A public key. `id` is its `kid` or None; `members` are the members of the JWK that define the key."""

    id: str | None
    type: str
    algorithms: tuple[str, ...]
    members: tuple[tuple[str, str], ...]

    def build(self) -> Any:
        """Returns the key as an object of `cryptography`; takes up to a millisecond.

        Raises:
            ValueError: the members do not define a key of this type.
        """
        try:
            return _KEY_BUILDERS[self.type].from_jwk({"kty": self.type, **dict(self.members)})
        except (PyJWTError, ValueError, TypeError) as error:
            raise ValueError(f"its members make no key of type {self.type}") from error

    @property
    def fingerprint(self) -> str:
        """Thumbprint of the key, independent of its id (RFC 7638)."""
        members = {"kty": self.type, **dict(self.members)}
        return hashlib.sha256(json.dumps(members, separators=(",", ":"), sort_keys=True).encode()).hexdigest()

    def to_body(self) -> dict[str, Any]:
        """Returns the form in which rows and documents store the key, with all its algorithms."""
        key_id = {} if self.id is None else {"kid": self.id}
        return {"kty": self.type, **key_id, **dict(self.members), "algs": list(self.algorithms)}

    def to_jwk(self) -> dict[str, str]:
        """Returns the key as a JWK (RFC 7517), which `keys_of` reads back."""
        key_id = {} if self.id is None else {"kid": self.id}
        algorithm = {"alg": self.algorithms[0]} if len(self.algorithms) == 1 else {}
        return {"kty": self.type, **key_id, **algorithm, "use": "sig", **dict(self.members)}

    @classmethod
    def from_body(cls, body: Mapping[str, Any]) -> PublicKey:
        """Returns the key that `to_body` wrote."""
        return cls(
            id=body.get("kid"),
            type=body["kty"],
            algorithms=tuple(body["algs"]),
            members=tuple((name, body[name]) for name in _PUBLIC_MEMBERS[body["kty"]]),
        )


def parse(raw: bytes, *, is_pinned: bool) -> tuple[PublicKey, ...]:
    """Returns the keys of a serialized key set that may verify tokens.

    Raises:
        KeySetRefused: no key may verify tokens, or the key set is pinned and one of its keys may not.
    """
    if len(raw) > KEY_SET_BYTES_MAX:
        raise KeySetRefused(gettext_noop("A key set has at most %(n)s bytes."), n=KEY_SET_BYTES_MAX)
    try:
        document = json.loads(raw)
    except (ValueError, RecursionError):
        raise KeySetRefused(gettext_noop("It is not JSON.")) from None
    return keys_of(document, is_pinned=is_pinned)


def keys_of(document: object, *, is_pinned: bool) -> tuple[PublicKey, ...]:
    """Returns the keys of a decoded key set that may verify tokens. Raises as `parse`."""
    jwks = document.get("keys") if isinstance(document, dict) else None
    if not isinstance(jwks, list):
        raise KeySetRefused(gettext_noop('A key set is a JSON object with a list "keys" (RFC 7517).'))
    if len(jwks) > KEYS_PER_SET_MAX:
        raise KeySetRefused(gettext_noop("A key set has at most %(n)s keys."), n=KEYS_PER_SET_MAX)
    keys: list[PublicKey] = []
    refusals: list[KeySetRefused] = []
    for number, jwk in enumerate(jwks):
        try:
            keys.append(_key(jwk, is_pinned=is_pinned))
        except KeySetRefused as refusal:
            if is_pinned:
                raise KeySetRefused(gettext_noop("Key %(n)s: %(why)s"), n=number, why=refusal) from None
            refusals.append(refusal)
    _require_distinct(keys)
    if not keys:
        if not refusals:
            raise KeySetRefused(gettext_noop("The set has no key that can prove a token."))
        raise KeySetRefused(gettext_noop("The set has no key that can prove a token. %(why)s"), why=refusals[0])
    return tuple(keys)


def _require_distinct(keys: Sequence[PublicKey]) -> None:
    ids = [key.id for key in keys if key.id is not None]
    duplicate = next((id for id in ids if ids.count(id) > 1), None)
    if duplicate is not None:
        raise KeySetRefused(gettext_noop('Two keys have the id "%(id)s".'), id=duplicate)


def _key(jwk: object, *, is_pinned: bool) -> PublicKey:
    if not isinstance(jwk, dict):
        raise KeySetRefused(gettext_noop("It is not a JSON object."))
    if is_pinned and not _PRIVATE_MEMBERS.isdisjoint(jwk):
        raise KeySetRefused(
            gettext_noop("It has a secret part. Pin public keys only, and replace this key: it has been sent.")
        )
    kind = jwk.get("kty")
    if not isinstance(kind, str) or kind not in _PUBLIC_MEMBERS or not _PRIVATE_MEMBERS.isdisjoint(jwk):
        raise KeySetRefused(gettext_noop("Only public keys of the types RSA, EC and OKP prove tokens."))
    _require_signature_use(jwk)
    id = jwk.get("kid")
    if id is not None and not (isinstance(id, str) and id.isprintable() and 0 < len(id.encode()) <= KEY_ID_BYTES_MAX):
        raise KeySetRefused(gettext_noop("Its id is not a text of 1 to %(n)s bytes."), n=KEY_ID_BYTES_MAX)
    members = tuple((name, jwk.get(name)) for name in _PUBLIC_MEMBERS[kind])
    if not all(isinstance(value, str) and _MEMBER_VALUE.fullmatch(value) for _, value in members):
        raise KeySetRefused(
            gettext_noop("A key of type %(type)s has the members %(names)s."),
            type=kind,
            names=", ".join(_PUBLIC_MEMBERS[kind]),
        )
    key = PublicKey(id=id, type=kind, algorithms=_algorithms(jwk), members=members)  # type: ignore[arg-type]
    try:
        key.build()
    except ValueError:
        raise KeySetRefused(gettext_noop("Its members make no key of type %(type)s."), type=kind) from None
    return key


def _require_signature_use(jwk: Mapping[str, Any]) -> None:
    purposes = jwk.get("key_ops")
    if jwk.get("use", "sig") != "sig" or (isinstance(purposes, list) and "verify" not in purposes):
        raise KeySetRefused(gettext_noop("It is not for signatures."))


def _algorithms(jwk: Mapping[str, Any]) -> tuple[str, ...]:
    """Returns the algorithms that the key may be used with: its `alg` if it has one, else all of its type."""
    if jwk["kty"] == "RSA":
        _require_size(jwk)
        allowed: tuple[str, ...] = RSA_ALGORITHMS
    else:
        algorithm = ALGORITHM_OF_CURVE.get((jwk["kty"], str(jwk.get("crv"))))
        if algorithm is None:
            raise KeySetRefused(gettext_noop("Curves are P-256, P-384, P-521, Ed25519 and Ed448."))
        allowed = (algorithm,)
    algorithm_name = jwk.get("alg")
    if algorithm_name is None:
        return allowed
    if not isinstance(algorithm_name, str) or _ALGORITHM_SYNONYMS.get(algorithm_name, algorithm_name) not in allowed:
        raise KeySetRefused(gettext_noop("Its algorithm is none that the key can have."))
    return (_ALGORITHM_SYNONYMS.get(algorithm_name, algorithm_name),)


def _require_size(jwk: Mapping[str, Any]) -> None:
    """Raises `KeySetRefused` for an RSA key of a wrong size, before it is built: building a huge key takes long."""
    bits, exponent_bits = _bits(jwk.get("n")), _bits(jwk.get("e"))
    if not RSA_KEY_BITS_MIN <= bits <= RSA_KEY_BITS_MAX:
        raise KeySetRefused(
            gettext_noop("An RSA key has %(least)s to %(most)s bits."), least=RSA_KEY_BITS_MIN, most=RSA_KEY_BITS_MAX
        )
    if not 1 < exponent_bits <= RSA_EXPONENT_BITS_MAX:
        raise KeySetRefused(
            gettext_noop("The exponent of an RSA key has at most %(most)s bits."), most=RSA_EXPONENT_BITS_MAX
        )


def _bits(text: object) -> int:
    """Returns the number of bits of a base64url number, or 0 if the text is not one."""
    if not isinstance(text, str) or not _MEMBER_VALUE.fullmatch(text):
        return 0
    try:
        return int.from_bytes(urlsafe_b64decode(text + "=" * (-len(text) % 4)), "big").bit_length()
    except ValueError:
        return 0
