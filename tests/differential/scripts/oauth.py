"""Tokens on a route that asks who is there (RFC 7628, KIP-255, KIP-768): right, wrong, torn, and again (KIP-368).

The broker takes tokens of `ISSUER`, whose key is the same each time, so that a broker can be started with its key set:

    python -m tests.differential.scripts.oauth > keys.json

Apache Kafka has these for the recording, for the listener with SASL (`url` is `file:///…/keys.json`, which it also
wants in `-Dorg.apache.kafka.sasl.oauthbearer.allowed.urls=url`): `sasl.enabled.mechanisms` with OAUTHBEARER,
`sasl.oauthbearer.jwks.endpoint.url=url`, `sasl.oauthbearer.expected.audience` and `….issuer` as `ISSUER` has them, and
below `listener.name.sasl_plaintext.oauthbearer.` OAuthBearerValidatorCallbackHandler as
`sasl.server.callback.handler.class` and OAuthBearerLoginModule in `sasl.jaas.config`.
"""

from __future__ import annotations

import json
import sys
import time
from typing import Any, Final

from cryptography.hazmat.primitives.asymmetric import ec

from tests.differential.play import CLOSED, ConnectionLost, Player
from tests.differential.scripts.sasl import ALICE, Peer, plain_token, shown_of
from tests.testkit.oauth import Issuer, b64, message

# Of no use to anybody: it is in the repository.
_SECRET: Final = 0x5EC7E7
_OTHER_SECRET: Final = 0x07E7
ISSUER: Final = Issuer(keys={"one": ec.derive_private_key(_SECRET, ec.SECP256R1())})
OTHER: Final = Issuer(keys={"one": ec.derive_private_key(_OTHER_SECRET, ec.SECP256R1())})
STRANGER: Final = Issuer("two", keys={"two": ec.derive_private_key(_OTHER_SECRET, ec.SECP256R1())})
MECHANISM: Final = "OAUTHBEARER"
CONFIRMED: Final = b"\x01"


def script(player: Player) -> None:
    _right(player)
    _invalid(player)
    _torn(player)
    _again(player)
    _raw(player)


def _shown(answer: Any) -> Any:
    """Lifetimes differ by what the exchange took: full minutes. Tokens are answered in words."""
    shown = shown_of(answer)
    if isinstance(shown, dict) and "token" in shown:
        shown["token"] = bytes(answer.auth_bytes).decode()
        shown["lifetime"] = f"{round(answer.session_lifetime_ms / 60_000)} minutes"
    return shown


def _peer(player: Player, what: str) -> Peer:
    return Peer(player, what, _shown)


def _right(player: Player) -> None:
    tokens = {
        "right": message(ISSUER.token()),
        "extensions": message(ISSUER.token(), traceId="a b", logicalCluster="lkc-1"),
        "own identity": message(ISSUER.token(), identity="alice"),
        "audience among others": message(ISSUER.token(aud=["other", ISSUER.audience])),
        "no key named": message(ISSUER.token(header={"kid": None})),
        "expired by less than the skew": message(ISSUER.token(iat=int(time.time() - 60), exp=time.time() - 5)),
        "not before in less than the skew": message(ISSUER.token(nbf=time.time() + 5)),
        "scope": message(ISSUER.token(scope="a b")),
        "scheme in capitals": message(ISSUER.token()).replace(b"Bearer", b"BEARER"),
        "two spaces": message(ISSUER.token()).replace(b"Bearer ", b"Bearer  "),
    }
    for what, token in tokens.items():
        peer = _peer(player, f"oauth, {what}")
        peer.handshake(MECHANISM)
        peer.say(token)
        if "expired" not in what:
            peer.is_open()


def _invalid(player: Player) -> None:
    now_s = time.time()
    tokens = {
        "audience": ISSUER.token(aud="other"),
        "no audience": ISSUER.token(aud=None),
        "issuer": ISSUER.token(iss="https://other.example.com/"),
        "no issuer": ISSUER.token(iss=None),
        "expired": ISSUER.token(iat=int(now_s - 600), exp=now_s - 60),
        "expired before it was issued": ISSUER.token(iat=int(now_s + 20), exp=now_s + 10),
        "no expiry": ISSUER.token(exp=None),
        "no issue": ISSUER.token(iat=None),
        "issued in the future": ISSUER.token(iat=int(now_s + 600)),
        "not before": ISSUER.token(nbf=now_s + 600),
        "no subject": ISSUER.token(sub=None),
        "empty subject": ISSUER.token(sub=""),
        "subject that is a number": ISSUER.token(sub=7),
        "unknown key": STRANGER.token(),
        "wrong signature": OTHER.token(),
        "none": f"{b64({'alg': 'none', 'kid': 'one'})}.{b64(ISSUER.claims())}.",
        "HMAC": f"{b64({'alg': 'HS256', 'kid': 'one'})}.{b64(ISSUER.claims())}.{b64(bytes(32))}",
        "another algorithm": f"{b64({'alg': 'ES384', 'kid': 'one'})}.{b64(ISSUER.claims())}.{b64(bytes(96))}",
        "no token": "abc",
        "two parts": f"{b64({'alg': 'ES256', 'kid': 'one'})}.{b64(ISSUER.claims())}",
    }
    for what, token in tokens.items():
        peer = _peer(player, f"oauth, invalid: {what}")
        peer.handshake(MECHANISM)
        peer.say(message(token))
        if what != "issued in the future":  # which Apache Kafka takes
            peer.say(CONFIRMED)
            peer.is_open()
    peer = _peer(player, "oauth, invalid, then another")
    peer.handshake(MECHANISM)
    peer.say(message(OTHER.token()))
    peer.say(message(ISSUER.token()))
    peer.is_open()
    peer = _peer(player, "oauth, invalid, then nonsense")
    peer.handshake(MECHANISM)
    peer.say(message(OTHER.token()))
    peer.say(b"\x02")
    peer = _peer(player, "oauth, other identity")
    peer.handshake(MECHANISM)
    peer.say(message(ISSUER.token(), identity="bob"))


def _torn(player: Player) -> None:
    right = ISSUER.token()
    tokens = {
        "empty": b"",
        "confirmed unasked": CONFIRMED,
        "plain": plain_token(*ALICE),
        "no pairs": b"n,,\x01\x01",
        "no separator": f"n,,auth=Bearer {right}\x01\x01".encode(),
        "no end": f"n,,\x01auth=Bearer {right}\x01".encode(),
        "more behind the end": message(right) + b"x",
        "basic": f"n,,\x01auth=Basic {right}\x01\x01".encode(),
        "no scheme": f"n,,\x01auth={right}\x01\x01".encode(),
        "another name": f"n,,\x01token=Bearer {right}\x01\x01".encode(),
        "binding": f"p=tls-unique,,\x01auth=Bearer {right}\x01\x01".encode(),
        "binding not offered": f"y,,\x01auth=Bearer {right}\x01\x01".encode(),
        "empty extension": message(right, x=""),
        "extension with a digit": message(right, x1="y"),
        "extension that is not ASCII": message(right, x="\u00e9"),
        "identity with an equals sign": message(right, identity="a=b"),
        "token with spaces": message(f"{right} x"),
        "padding": message(f"{right}=="),
    }
    for what, token in tokens.items():
        peer = _peer(player, f"oauth, torn: {what}")
        peer.handshake(MECHANISM)
        peer.say(token)
        peer.is_open()


def _again(player: Player) -> None:
    for what, token in {
        "right": ISSUER.token(lifetime_s=600),
        "another principal": ISSUER.token("bob"),
        "invalid": OTHER.token(),
    }.items():
        peer = _peer(player, f"oauth, again: {what}")
        peer.handshake(MECHANISM)
        peer.say(message(ISSUER.token(lifetime_s=300)))
        peer.is_open()
        peer.handshake(MECHANISM)
        peer.say(message(token))
        if what == "invalid":
            peer.say(CONFIRMED)
        peer.is_open()
    peer = _peer(player, "oauth, again: another mechanism")
    peer.handshake(MECHANISM)
    peer.say(message(ISSUER.token()))
    peer.handshake("PLAIN")
    peer.say(plain_token(*ALICE))
    peer = _peer(player, "oauth, again at once")
    peer.handshake(MECHANISM)
    peer.say(message(ISSUER.token()))
    peer.handshake(MECHANISM)
    peer.say(message(ISSUER.token()))
    peer.handshake(MECHANISM)
    peer.is_open()


def _raw(player: Player) -> None:
    for what, token in {"right": ISSUER.token(), "wrong": OTHER.token()}.items():
        peer = _peer(player, f"oauth, raw, {what}")
        peer.handshake(MECHANISM, 0)
        for number, raw in enumerate((message(token), CONFIRMED)[: 1 if what == "right" else 2], start=1):
            label = f"oauth, raw, {what}, token {number}"
            try:
                player.write_down(label, peer.player.exchange_raw(raw).decode())
            except ConnectionLost:
                player.write_down(label, CLOSED)
                break
        else:
            peer.is_open()


if __name__ == "__main__":
    sys.stdout.write(json.dumps(ISSUER.jwks))
