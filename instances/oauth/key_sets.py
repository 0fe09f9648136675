"""JSON Web Key Sets (RFC 7517): which of their keys may prove a token, and for which algorithms. Pure.

Only asymmetric keys are kept, and of those only what is public. What an authorization server publishes may hold keys
for other purposes: they are left out. A set that a person pins holds nothing else, so there they are a mistake.
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
# RFC 9864's names of what EdDSA means with either curve.
_EQUIVALENT: Final[Mapping[str, str]] = {"Ed25519": "EdDSA", "Ed448": "EdDSA"}
ALGORITHMS: Final = frozenset((*RSA_ALGORITHMS, *ALGORITHM_OF_CURVE.values()))
_PUBLIC_MEMBERS: Final[Mapping[str, tuple[str, ...]]] = {
    "RSA": ("n", "e"),
    "EC": ("crv", "x", "y"),
    "OKP": ("crv", "x"),
}
# base64url, or the name of a curve. Python's own decoder takes anything.
_MEMBER: Final = re.compile(r"[A-Za-z0-9_-]+=*")
_PRIVATE_MEMBERS: Final = frozenset({"d", "p", "q", "dp", "dq", "qi", "oth", "k"})
_MAKERS: Final[Mapping[str, Any]] = {"RSA": RSAAlgorithm, "EC": ECAlgorithm, "OKP": OKPAlgorithm}


class KeySetRefused(ValueError):
    """It is no key set that can be used; the message says why, to whoever wrote it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PublicKey:
    """One key. `id` is its `kid`, None where it has none; `members` are those of the JWK that make the key."""

    id: str | None
    type: str
    algorithms: tuple[str, ...]
    members: tuple[tuple[str, str], ...]

    def build(self) -> Any:
        """As `cryptography` has it. Takes up to a millisecond.

        Raises:
            ValueError: it is no such key.
        """
        try:
            return _MAKERS[self.type].from_jwk({"kty": self.type, **dict(self.members)})
        except (PyJWTError, ValueError, TypeError) as error:
            raise ValueError(f"its members make no key of type {self.type}") from error

    @property
    def fingerprint(self) -> str:
        """What tells it from every other key, whatever it is called (RFC 7638)."""
        named = {"kty": self.type, **dict(self.members)}
        return hashlib.sha256(json.dumps(named, separators=(",", ":"), sort_keys=True).encode()).hexdigest()

    def to_body(self) -> dict[str, Any]:
        """As rows and documents keep it, with all algorithms that it is for."""
        named = {} if self.id is None else {"kid": self.id}
        return {"kty": self.type, **named, **dict(self.members), "algs": list(self.algorithms)}

    def to_jwk(self) -> dict[str, str]:
        """As RFC 7517 writes it; `keys_of` makes the same key of it."""
        named = {} if self.id is None else {"kid": self.id}
        algorithm = {"alg": self.algorithms[0]} if len(self.algorithms) == 1 else {}
        return {"kty": self.type, **named, **algorithm, "use": "sig", **dict(self.members)}

    @classmethod
    def from_body(cls, body: Mapping[str, Any]) -> PublicKey:
        """What `to_body` made."""
        return cls(
            id=body.get("kid"),
            type=body["kty"],
            algorithms=tuple(body["algs"]),
            members=tuple((name, body[name]) for name in _PUBLIC_MEMBERS[body["kty"]]),
        )


def parse(raw: bytes, *, is_pinned: bool) -> tuple[PublicKey, ...]:
    """The keys of a set that may prove tokens.

    Raises:
        KeySetRefused: none may; or, of a pinned one, one of them may not.
    """
    if len(raw) > KEY_SET_BYTES_MAX:
        raise KeySetRefused(f"A key set has at most {KEY_SET_BYTES_MAX} bytes.")
    try:
        document = json.loads(raw)
    except (ValueError, RecursionError):
        raise KeySetRefused("It is not JSON.") from None
    return keys_of(document, is_pinned=is_pinned)


def keys_of(document: object, *, is_pinned: bool) -> tuple[PublicKey, ...]:
    """As `parse`, of what was JSON."""
    listed = document.get("keys") if isinstance(document, dict) else None
    if not isinstance(listed, list):
        raise KeySetRefused('A key set is a JSON object with a list "keys" (RFC 7517).')
    if len(listed) > KEYS_PER_SET_MAX:
        raise KeySetRefused(f"A key set has at most {KEYS_PER_SET_MAX} keys.")
    keys: list[PublicKey] = []
    faults: list[str] = []
    for number, jwk in enumerate(listed):
        try:
            keys.append(_key(jwk, is_pinned=is_pinned))
        except KeySetRefused as refused:
            if is_pinned:
                raise KeySetRefused(f"Key {number}: {refused}") from None
            faults.append(str(refused))
    _require_distinct(keys)
    if not keys:
        detail = f" {faults[0]}" if faults else ""
        raise KeySetRefused(f"The set has no key that can prove a token.{detail}")
    return tuple(keys)


def _require_distinct(keys: Sequence[PublicKey]) -> None:
    ids = [key.id for key in keys if key.id is not None]
    twice = next((id for id in ids if ids.count(id) > 1), None)
    if twice is not None:
        raise KeySetRefused(f'Two keys have the id "{twice}".')


def _key(jwk: object, *, is_pinned: bool) -> PublicKey:
    if not isinstance(jwk, dict):
        raise KeySetRefused("It is not a JSON object.")
    if is_pinned and not _PRIVATE_MEMBERS.isdisjoint(jwk):
        raise KeySetRefused("It has a secret part. Pin public keys only, and replace this key: it has been sent.")
    kind = jwk.get("kty")
    if not isinstance(kind, str) or kind not in _PUBLIC_MEMBERS or not _PRIVATE_MEMBERS.isdisjoint(jwk):
        raise KeySetRefused("Only public keys of the types RSA, EC and OKP prove tokens.")
    _require_for_signatures(jwk)
    id = jwk.get("kid")
    if id is not None and not (isinstance(id, str) and id.isprintable() and 0 < len(id.encode()) <= KEY_ID_BYTES_MAX):
        raise KeySetRefused(f"Its id is not a text of 1 to {KEY_ID_BYTES_MAX} bytes.")
    members = tuple((name, jwk.get(name)) for name in _PUBLIC_MEMBERS[kind])
    if not all(isinstance(value, str) and _MEMBER.fullmatch(value) for _, value in members):
        raise KeySetRefused(f"A key of type {kind} has the members {', '.join(_PUBLIC_MEMBERS[kind])}.")
    key = PublicKey(id=id, type=kind, algorithms=_algorithms(jwk), members=members)  # type: ignore[arg-type]
    try:
        key.build()
    except ValueError:
        raise KeySetRefused(f"Its members make no key of type {kind}.") from None
    return key


def _require_for_signatures(jwk: Mapping[str, Any]) -> None:
    purposes = jwk.get("key_ops")
    if jwk.get("use", "sig") != "sig" or (isinstance(purposes, list) and "verify" not in purposes):
        raise KeySetRefused("It is not for signatures.")


def _algorithms(jwk: Mapping[str, Any]) -> tuple[str, ...]:
    """What the key may be used with: what its `alg` says, if it can be true."""
    if jwk["kty"] == "RSA":
        _require_size(jwk)
        possible: tuple[str, ...] = RSA_ALGORITHMS
    else:
        algorithm = ALGORITHM_OF_CURVE.get((jwk["kty"], str(jwk.get("crv"))))
        if algorithm is None:
            raise KeySetRefused("Curves are P-256, P-384, P-521, Ed25519 and Ed448.")
        possible = (algorithm,)
    named = jwk.get("alg")
    if named is None:
        return possible
    if not isinstance(named, str) or _EQUIVALENT.get(named, named) not in possible:
        raise KeySetRefused("Its algorithm is none that the key can have.")
    return (_EQUIVALENT.get(named, named),)


def _require_size(jwk: Mapping[str, Any]) -> None:
    """Before the key is made: that takes long of a huge one."""
    bits, exponent_bits = _bits(jwk.get("n")), _bits(jwk.get("e"))
    if not RSA_KEY_BITS_MIN <= bits <= RSA_KEY_BITS_MAX:
        raise KeySetRefused(f"An RSA key has {RSA_KEY_BITS_MIN} to {RSA_KEY_BITS_MAX} bits.")
    if not 1 < exponent_bits <= RSA_EXPONENT_BITS_MAX:
        raise KeySetRefused(f"The exponent of an RSA key has at most {RSA_EXPONENT_BITS_MAX} bits.")


def _bits(text: object) -> int:
    """Of a base64url number; 0: it is none."""
    if not isinstance(text, str) or not _MEMBER.fullmatch(text):
        return 0
    try:
        return int.from_bytes(urlsafe_b64decode(text + "=" * (-len(text) % 4)), "big").bit_length()
    except ValueError:
        return 0
