"""DescribeClientQuotas and AlterClientQuotas of addresses, in both versions (QUO-71, QUO-72)."""

from __future__ import annotations

from brokers.engine.protocol.messages.quotas import QuotaAlteration, QuotaEntity, QuotaOperation
from tests.differential.play import Player
from tests.differential.scripts.quotas import ANY, DEFAULT, EXACT, VersionedQuotas

RATE = "connection_creation_rate"
MANY = 100_000.0


def wide_address(version: int) -> str:
    return f"2001:db8::{version + 1}"


def script(player: Player) -> None:
    for version in range(2):
        ask = VersionedQuotas(player, version)
        _right(ask, version)
        _wrong(ask, version)
        _spellings(ask, version)
        _removed(ask, version)


def _right(ask: VersionedQuotas, version: int) -> None:
    own, wide = f"192.0.2.{version}", wide_address(version)
    ask.alter("three", ({"ip": own}, {RATE: 5.0}), ({"ip": wide}, {RATE: 6.0}), ({"ip": None}, {RATE: MANY}))
    ask.alter("a user beside them", ({"user": ask.user}, {"producer_byte_rate": 1.0}))
    ask.describe("everything")
    ask.describe("everything, strictly", strict=True)
    ask.describe("one", ("ip", EXACT, own))
    ask.describe("one, strictly", ("ip", EXACT, own), strict=True)
    ask.describe("one of IPv6", ("ip", EXACT, wide))
    ask.describe("any", ("ip", ANY, None))
    ask.describe("any, strictly", ("ip", ANY, None), strict=True)
    ask.describe("the default", ("ip", DEFAULT, None))
    ask.describe("the default, strictly", ("ip", DEFAULT, None), strict=True)
    ask.describe("a stranger", ("ip", EXACT, "198.51.100.1"))
    ask.describe("users only", ("user", ANY, None))
    ask.describe("clients only", ("client-id", ANY, None))
    ask.alter("changed", ({"ip": own}, {RATE: 7.0}))
    ask.alter("only checked", ({"ip": own}, {RATE: 8.0}), validate_only=True)
    ask.alter("nothing to do", ({"ip": own}, {}))
    ask.alter("none at all", ({"ip": wide}, {RATE: 0.0}))
    ask.alter("the largest", ({"ip": wide}, {RATE: 2.0**31 - 1}))
    ask.alter("nearly whole", ({"ip": own}, {RATE: 9.0000000001}))
    ask.describe("after the changes", ("ip", ANY, None))


def _wrong(ask: VersionedQuotas, version: int) -> None:
    own = f"192.0.2.{version}"
    ask.alter("a rate of bytes", ({"ip": own}, {"producer_byte_rate": 1.0}))
    ask.alter("a rate of bytes removed", ({"ip": own}, {"producer_byte_rate": None}))
    ask.alter("an unknown key", ({"ip": own}, {"no_such_rate": 1.0}))
    ask.alter("an unknown key removed", ({"ip": own}, {"no_such_rate": None}))
    ask.alter("of a user", ({"user": ask.user}, {RATE: 1.0}))
    ask.alter("of a client", ({"client-id": None}, {RATE: 1.0}))
    ask.alter("with a user", ({"ip": own, "user": ask.user}, {RATE: 1.0}))
    ask.alter("with a client", ({"ip": own, "client-id": None}, {RATE: 1.0}))
    ask.alter("with both", ({"ip": None, "client-id": None, "user": None}, {RATE: 1.0}))
    ask.alter("an empty address", ({"ip": ""}, {RATE: 1.0}))
    for what in ("no.such.host.invalid", "999.0.2.1", "192.0.2.1/32", "<default>", "1:2:3"):
        ask.alter(f"no address: {what}", ({"ip": what}, {RATE: 1.0}))
        ask.alter(f"no address, checked: {what}", ({"ip": what}, {RATE: 1.0}), validate_only=True)
        ask.alter(f"no address, removed: {what}", ({"ip": what}, {RATE: None}))
    ask.alter("a negative rate", ({"ip": own}, {RATE: -1.0}))
    ask.alter("half a connection", ({"ip": own}, {RATE: 0.5}))
    ask.alter("beyond the largest", ({"ip": own}, {RATE: 2.0**31}))
    ask.alter("a huge rate", ({"ip": own}, {RATE: 1e18}))
    ask.alter("one right, one wrong", ({"ip": own}, {RATE: 11.0}), ({"ip": own, "user": "a"}, {RATE: 1.0}))
    twice = [QuotaEntity(entity_type="ip", entity_name=name) for name in ("198.51.100.9", own)]
    ask.alter_with("an address twice", [QuotaAlteration(entity=twice, ops=[QuotaOperation(key=RATE, value=12.0)])])
    ask.describe("after the wrong ones", ("ip", ANY, None))
    ask.describe("an address and a client", ("ip", ANY, None), ("client-id", ANY, None))
    ask.describe("an address twice", ("ip", ANY, None), ("ip", DEFAULT, None))
    ask.describe("exactly nothing", ("ip", EXACT, None))
    ask.describe("the default with a name", ("ip", DEFAULT, own))
    ask.describe("no address", ("ip", EXACT, "no.such.host.invalid"))
    ask.describe("match type 9", ("ip", 9, None))


def _spellings(ask: VersionedQuotas, version: int) -> None:
    long = f"2001:0DB8:0:0:0:0:0:{version + 1}"
    ask.alter("another spelling", ({"ip": long}, {RATE: 13.0}))
    ask.describe("another spelling", ("ip", ANY, None))
    ask.alter("another spelling removed", ({"ip": long}, {RATE: None}))
    ask.alter("a name of a host", ({"ip": "localhost"}, {RATE: MANY}))
    ask.alter("a name of a host removed", ({"ip": "localhost"}, {RATE: None}))


def _removed(ask: VersionedQuotas, version: int) -> None:
    ask.alter("one removed that is not set", ({"ip": "198.51.100.9"}, {RATE: None}))
    ask.alter(
        "all removed",
        ({"ip": f"192.0.2.{version}"}, {RATE: None}),
        ({"ip": wide_address(version)}, {RATE: None}),
        ({"ip": None}, {RATE: None}),
        ({"user": ask.user}, {"producer_byte_rate": None}),
    )
    ask.describe("nothing left")
