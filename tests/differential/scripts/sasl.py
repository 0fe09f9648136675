"""Authentication on a route that asks who is there: good, wrong, torn and out of order (WIRE-18, WIRE-19).

The users are there before: `alice` with a password for PLAIN, `carol` with one for both SCRAM mechanisms.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

from brokers.engine.protocol import codec
from brokers.engine.protocol.apis import ApiKey
from brokers.engine.protocol.messages.metadata import MetadataRequest
from brokers.engine.protocol.messages.sasl import ApiVersionsRequest, SaslAuthenticateRequest, SaslHandshakeRequest
from tests.differential.play import CLOSED, ConnectionLost, Player
from tests.testkit.scram import ScramClient

ALICE: Final = ("alice", "alice-secret")
CAROL: Final = ("carol", "carol-secret")
PLAIN: Final = "PLAIN"


def script(player: Player) -> None:
    _plain(player)
    _scram(player)
    _order(player)
    _raw(player)


class Peer:
    """A connection of its own, whose answers are written down under a label each."""

    def __init__(self, player: Player, what: str, shown: Callable[[Any], Any] | None = None) -> None:
        self.player = player.another()
        self.what = what
        self._shown = shown or shown_of
        self._number = 0

    def ask(self, api_key: int, version: int, message: Any) -> Any:
        self._number += 1
        label = f"{self.what}, {self._number}: {ApiKey(api_key).name.lower()} v{version}"
        try:
            answer = self.player.call_body(api_key, version, codec.encode_request(api_key, version, message))
        except ConnectionLost:
            self.player.write_down(label, CLOSED)
            return None
        self.player.write_down(label, self._shown(answer))
        return answer

    def handshake(self, mechanism: str = PLAIN, version: int = 1) -> Any:
        return self.ask(ApiKey.SASL_HANDSHAKE, version, SaslHandshakeRequest(mechanism=mechanism))

    def say(self, token: bytes, version: int = 2) -> Any:
        return self.ask(ApiKey.SASL_AUTHENTICATE, version, SaslAuthenticateRequest(auth_bytes=token))

    def versions(self, version: int = 3, name: str = "test") -> Any:
        request = ApiVersionsRequest(client_software_name=name, client_software_version="1")
        return self.ask(ApiKey.API_VERSIONS, version, request)

    def metadata(self) -> None:
        self.ask(ApiKey.METADATA, 12, MetadataRequest(topics=[]))

    def is_open(self) -> None:
        """Checks that the connection is open, without recording the answer."""
        self.metadata()


def shown_of(answer: Any) -> Any:
    """Returns the parts of an answer that are equal in two brokers: codes, words, mechanisms, the beginning
    of a token.
    """
    if not hasattr(answer, "error_code"):
        return {"brokers": len(answer.brokers)}
    shown = {"error_code": answer.error_code}
    if hasattr(answer, "mechanisms"):
        shown["mechanisms"] = sorted(answer.mechanisms)
    if hasattr(answer, "auth_bytes"):
        shown |= {
            "error_message": answer.error_message,
            "token": sorted(part.partition(b"=")[0].decode() for part in bytes(answer.auth_bytes).split(b",")),
            "lifetime": answer.session_lifetime_ms,
        }
    if hasattr(answer, "api_keys"):
        shown["has_sasl"] = {17, 36} <= {each.api_key for each in answer.api_keys}
    return shown


def plain_token(name: str, password: str, identity: str = "") -> bytes:
    return f"{identity}\0{name}\0{password}".encode()


def _plain(player: Player) -> None:
    for version in (0, 1, 2):
        peer = Peer(player, f"plain, right, v{version}")
        peer.versions()
        peer.handshake()
        peer.say(plain_token(*ALICE), version)
        peer.is_open()
        peer.say(plain_token(*ALICE), version)
        peer.handshake()
        peer.is_open()
    tokens = {
        "wrong password": plain_token("alice", "wrong"),
        "unknown user": plain_token("nobody", "secret"),
        "own identity": plain_token(*ALICE, identity="alice"),
        "other identity": plain_token(*ALICE, identity="bob"),
        "other identity, wrong password": plain_token("alice", "wrong", identity="bob"),
        "no user": plain_token("", "secret"),
        "no password": plain_token("alice", ""),
        "two parts": b"\0alice",
        "one part": b"alice",
        "four parts": b"\0alice\0alice-secret\0",
        "six parts": b"\0a\0b\0c\0d\0e",
        "empty": b"",
        "not UTF-8": b"\0\xff\xfe\0x",
    }
    for what, token in tokens.items():
        peer = Peer(player, f"plain, {what}")
        peer.handshake()
        peer.say(token)
        peer.is_open()


def _scram(player: Player) -> None:
    for mechanism in (1, 2):
        client = ScramClient(*CAROL, mechanism)
        peer = Peer(player, f"{client.mechanism_name}, right")
        peer.handshake(client.mechanism_name)
        first = peer.say(client.first())
        final = peer.say(client.final(bytes(first.auth_bytes)))
        player.write_down(
            f"{client.mechanism_name}, right: is the server's", client.is_servers(bytes(final.auth_bytes))
        )
        peer.is_open()
    finals: dict[str, dict[str, str]] = {
        "wrong nonce": {"r": "another"},
        "no proof": {"p": ""},
        "short proof": {"p": "AAAA"},
        "proof that is no base64": {"p": "%%%"},
    }
    for what, changes in finals.items():
        _scram_exchange(player, what, ScramClient(*CAROL), **changes)
    _scram_exchange(player, "wrong password", ScramClient("carol", "wrong"))
    other = ScramClient(*CAROL)
    other.gs2 = "n,a=bob,"
    _scram_exchange(player, "other identity", other)
    for mechanism in (1, 2):
        twice = ScramClient(*CAROL, mechanism)
        twice.says_nonce_twice = True
        _scram_exchange(player, f"{twice.mechanism_name}, own nonce in front again", twice)
    own = ScramClient(*CAROL)
    own.gs2 = "n,a=carol,"
    _scram_exchange(player, "own identity", own)
    firsts = {
        "unknown user": ScramClient("nobody", "x").first(),
        "channel binding": b"p=tls-unique,,n=carol,r=abc",
        "channel binding not offered": b"y,,n=carol,r=abc",
        "no nonce": b"n,,n=carol,r=",
        "torn": b"n,,n=car",
        "empty": b"",
        "extensions": b"n,,n=carol,r=abc,tokenauth=false,other=1",
        "mandatory extension": b"n,,m=1,n=carol,r=abc",
    }
    for what, token in firsts.items():
        peer = Peer(player, f"scram, {what}")
        peer.handshake("SCRAM-SHA-256")
        peer.say(token)


def _scram_exchange(player: Player, what: str, client: ScramClient, **changes: str) -> None:
    peer = Peer(player, f"scram, {what}")
    peer.handshake(client.mechanism_name)
    first = peer.say(client.first())
    if first is None or first.error_code:
        return
    peer.say(client.final(bytes(first.auth_bytes), **changes))


def _order(player: Player) -> None:
    peer = Peer(player, "unknown mechanism")
    peer.handshake("GSSAPI")
    peer.is_open()
    peer = Peer(player, "no mechanism")
    peer.handshake("")
    peer = Peer(player, "metadata first")
    peer.metadata()
    peer = Peer(player, "token first")
    peer.say(plain_token(*ALICE))
    peer = Peer(player, "versions twice")
    peer.versions()
    peer.versions()
    peer = Peer(player, "versions of a later version, then of ours")
    peer.versions(3, name="")
    peer.versions()
    peer.handshake()
    peer = Peer(player, "versions after the handshake")
    peer.handshake()
    peer.versions()
    peer = Peer(player, "handshake twice")
    peer.handshake()
    peer.handshake()
    peer = Peer(player, "handshake after versions twice")
    peer.versions()
    peer.handshake()
    peer.handshake()
    peer = Peer(player, "metadata after the handshake")
    peer.handshake()
    peer.metadata()


def _raw(player: Player) -> None:
    """Tokens without headers, after a handshake of version 0."""

    def exchange(what: str, mechanism: str, *tokens: bytes | Callable[[bytes], bytes]) -> None:
        peer = Peer(player, f"raw, {what}")
        peer.handshake(mechanism, 0)
        answer = b""
        for number, token in enumerate(tokens, start=1):
            said = token if isinstance(token, bytes) else token(answer)
            label = f"raw, {what}, token {number}"
            try:
                answer = peer.player.exchange_raw(said)
            except ConnectionLost:
                player.write_down(label, CLOSED)
                return
            player.write_down(label, sorted(part.partition(b"=")[0].decode() for part in answer.split(b",")))
        peer.is_open()

    exchange("plain, right", PLAIN, plain_token(*ALICE))
    exchange("plain, wrong", PLAIN, plain_token("alice", "wrong"))
    carol, wrong = ScramClient(*CAROL, 2), ScramClient("carol", "wrong", 2)
    exchange("scram, right", carol.mechanism_name, carol.first(), carol.final)
    exchange("scram, wrong", wrong.mechanism_name, wrong.first(), wrong.final)
