"""An authorization server of tests: keys, and valid and invalid tokens signed with them."""

from __future__ import annotations

import json
import time
from base64 import urlsafe_b64encode
from dataclasses import dataclass, field
from typing import Any

import jwt
from cryptography.hazmat.primitives.asymmetric import ec, ed448, ed25519, rsa
from jwt.algorithms import ECAlgorithm, OKPAlgorithm, RSAAlgorithm

from brokers.contract.oauth import OAuthDocument
from instances.oauth.key_sets import keys_of

ISSUER = "https://login.example.com/"
AUDIENCE = "kafka"
_CURVES = {"ES256": ec.SECP256R1(), "ES384": ec.SECP384R1(), "ES512": ec.SECP521R1()}


def make_key(algorithm: str = "ES256", *, rsa_bits: int = 2048) -> Any:
    """Returns a new private key; elliptic curves are fast."""
    if algorithm in _CURVES:
        return ec.generate_private_key(_CURVES[algorithm])
    if algorithm == "EdDSA":
        return ed25519.Ed25519PrivateKey.generate()
    return rsa.generate_private_key(public_exponent=65537, key_size=rsa_bits)


def jwk_of(key: Any, kid: str | None = None, **members: Any) -> dict[str, Any]:
    """Returns the public key as a JWK."""
    public = key.public_key()
    if isinstance(public, rsa.RSAPublicKey):
        body = RSAAlgorithm.to_jwk(public, as_dict=True)
    elif isinstance(public, ec.EllipticCurvePublicKey):
        body = ECAlgorithm.to_jwk(public, as_dict=True)
    else:
        assert isinstance(public, ed25519.Ed25519PublicKey | ed448.Ed448PublicKey)
        body = OKPAlgorithm.to_jwk(public, as_dict=True)
    body.pop("key_ops", None)
    return {**body, **({} if kid is None else {"kid": kid}), **members}


def b64(raw: bytes | str | dict[str, Any]) -> str:
    if isinstance(raw, dict):
        raw = json.dumps(raw)
    return urlsafe_b64encode(raw.encode() if isinstance(raw, str) else raw).rstrip(b"=").decode()


@dataclass
class Issuer:
    """An issuer that signs with the key `kid`, by its algorithm."""

    kid: str = "one"
    algorithm: str = "ES256"
    issuer: str = ISSUER
    audience: str = AUDIENCE
    keys: dict[str, Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.keys.setdefault(self.kid, make_key(self.algorithm))

    def rotate(self, kid: str) -> None:
        """Switches to a new key; the old one stays in the set."""
        self.kid = kid
        self.keys[kid] = make_key(self.algorithm)

    @property
    def jwks(self) -> dict[str, Any]:
        return {"keys": [jwk_of(key, kid, use="sig") for kid, key in self.keys.items()]}

    def document(self, **fields: Any) -> OAuthDocument:
        """Returns the document that brokers read."""
        document_ = OAuthDocument(
            **{"issuer": self.issuer, "audience": self.audience, "keys": keys_of(self.jwks, is_pinned=True), **fields}
        )
        return OAuthDocument.from_json(document_.to_json())

    def claims(self, name: str = "alice", lifetime_s: float = 3_600, **claims: Any) -> dict[str, Any]:
        """Returns claims; None leaves one out."""
        now_s = time.time()
        usual = {"iss": self.issuer, "aud": self.audience, "sub": name, "iat": int(now_s), "exp": now_s + lifetime_s}
        return {key: value for key, value in {**usual, **claims}.items() if value is not None}

    def token(
        self, name: str = "alice", lifetime_s: float = 3_600, header: dict[str, Any] | None = None, **claims: Any
    ) -> str:
        """Returns a signed token; a header that is None is left out."""
        headers = {"kid": self.kid, **(header or {})}
        return jwt.PyJWS().encode(
            json.dumps(self.claims(name, lifetime_s, **claims)).encode(),
            self.keys[self.kid],
            algorithm=self.algorithm,
            headers={key: value for key, value in headers.items() if value is not None},
        )


def message(token: str, identity: str = "", **extensions: str) -> bytes:
    """Returns a client's first message."""
    pairs = "".join(f"{name}={value}\x01" for name, value in {"auth": f"Bearer {token}", **extensions}.items())
    return f"n,{f'a={identity}' if identity else ''},\x01{pairs}\x01".encode()
