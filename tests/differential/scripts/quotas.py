"""DescribeClientQuotas and AlterClientQuotas in both versions (QUO-70, QUO-71)."""

from __future__ import annotations

from typing import Any

from brokers.engine.protocol.apis import ApiKey
from brokers.engine.protocol.messages.quotas import (
    AlterClientQuotasRequest,
    DescribeClientQuotasRequest,
    QuotaAlteration,
    QuotaEntity,
    QuotaFilterComponent,
    QuotaOperation,
)
from tests.differential.play import Player

EXACT, DEFAULT, ANY = 0, 1, 2
RATE = "producer_byte_rate"
Entity = dict[str, str | None]


def script(player: Player) -> None:
    for version in range(2):
        VersionedQuotas(player, version).play()


class VersionedQuotas:
    """Asks in one version, and writes down answers in an order of their own."""

    def __init__(self, player: Player, version: int) -> None:
        self.player = player
        self.version = version
        self.user = f"diff-user-{version}"
        self.client = f"diff-client-{version}"

    def alter(self, what: str, *entries: tuple[Entity, dict[str, float | None]], validate_only: bool = False) -> None:
        alterations = [
            QuotaAlteration(
                entity=[QuotaEntity(entity_type=kind, entity_name=name) for kind, name in entity.items()],
                ops=[
                    QuotaOperation(key=key, value=value or 0.0, remove=value is None) for key, value in limits.items()
                ],
            )
            for entity, limits in entries
        ]
        self.alter_with(what, alterations, validate_only=validate_only)

    def alter_with(self, what: str, alterations: list[QuotaAlteration], *, validate_only: bool = False) -> None:
        request = AlterClientQuotasRequest(entries=alterations, validate_only=validate_only)
        answer = self.player.call(ApiKey.ALTER_CLIENT_QUOTAS, self.version, request)
        answer.entries.sort(
            key=lambda entry: sorted((part.entity_type, part.entity_name or "") for part in entry.entity)
        )
        for entry in answer.entries:
            entry.entity.sort(key=lambda part: part.entity_type)
        self.player.write_down_answer(f"alter v{self.version}: {what}", answer)

    def describe(self, what: str, *components: tuple[str, int, str | None], strict: bool = False) -> None:
        request = DescribeClientQuotasRequest(
            components=[
                QuotaFilterComponent(entity_type=kind, match_type=match_type, match=match)
                for kind, match_type, match in components
            ],
            strict=strict,
        )
        answer: Any = self.player.call(ApiKey.DESCRIBE_CLIENT_QUOTAS, self.version, request)
        for entry in answer.entries or []:
            entry.entity.sort(key=lambda part: part.entity_type)
            entry.values.sort(key=lambda value: value.key)
        if answer.entries:
            answer.entries.sort(key=lambda entry: [(part.entity_type, part.entity_name or "") for part in entry.entity])
        self.player.write_down_answer(f"describe v{self.version}: {what}", answer)

    def play(self) -> None:
        self._right()
        self._wrong()
        self._removed()

    def _right(self) -> None:
        user, client = self.user, self.client
        self.alter(
            "eight levels",
            ({"user": user, "client-id": client}, {RATE: 1.0}),
            ({"user": user, "client-id": None}, {RATE: 2.0}),
            ({"user": user}, {RATE: 3.0, "consumer_byte_rate": 35.0}),
            ({"user": None, "client-id": client}, {RATE: 4.0}),
            ({"user": None, "client-id": None}, {RATE: 5.0}),
            ({"user": None}, {RATE: 6.0}),
            ({"client-id": client}, {RATE: 7.0, "request_percentage": 50.0}),
            ({"client-id": None}, {RATE: 8.0, "controller_mutation_rate": 9.5}),
        )
        self.describe("everything")
        self.describe("one user", ("user", EXACT, user))
        self.describe("one user, strictly", ("user", EXACT, user), strict=True)
        self.describe("user and client", ("user", EXACT, user), ("client-id", EXACT, client))
        self.describe("any user, strictly", ("user", ANY, None), strict=True)
        self.describe("the default user", ("user", DEFAULT, None))
        self.describe("the default user, strictly", ("user", DEFAULT, None), strict=True)
        self.describe("one client, strictly", ("client-id", EXACT, client), strict=True)
        self.describe("any user and the default client", ("user", ANY, None), ("client-id", DEFAULT, None))
        self.describe("both defaults", ("user", DEFAULT, None), ("client-id", DEFAULT, None), strict=True)
        self.describe("a stranger", ("user", EXACT, "nobody"))
        self.describe("everything, strictly", strict=True)
        self.alter("changed", ({"user": user}, {RATE: 33.0}))
        self.alter("only checked", ({"user": user}, {RATE: 44.0}), validate_only=True)
        self.alter("nothing to do", ({"user": user}, {}))
        self.alter("no entries")
        self.describe("after the change", ("user", EXACT, user), strict=True)
        self.alter("one limit removed", ({"user": user}, {"consumer_byte_rate": None}))
        self.alter("a limit removed that is not set", ({"user": user}, {"consumer_byte_rate": None}))
        self.describe("after the removal", ("user", EXACT, user), strict=True)

    def _wrong(self) -> None:
        user = self.user
        self.alter("an unknown key", ({"user": user}, {"no_such_rate": 1.0}))
        self.alter("an unknown key removed", ({"user": user}, {"no_such_rate": None}))
        self.alter("an unknown kind of entity", ({"planet": "earth"}, {RATE: 1.0}))
        self.alter("no entity", ({}, {RATE: 1.0}))
        self.alter("an empty name", ({"user": ""}, {RATE: 1.0}))
        self.alter("user and address", ({"user": user, "ip": "127.0.0.1"}, {RATE: 1.0}))
        self.alter("a negative limit", ({"user": user}, {RATE: -1.0}))
        self.alter("a limit of zero", ({"user": user}, {RATE: 0.0}))
        self.alter("half a byte", ({"user": user}, {RATE: 0.5}))
        self.alter("a huge limit", ({"user": user}, {RATE: 1e18}))
        self.alter("one right, one wrong", ({"user": user}, {RATE: 55.0}), ({"user": user, "ip": "::1"}, {RATE: 1.0}))
        repeated = QuotaAlteration(
            entity=[QuotaEntity(entity_type="user", entity_name=user)],
            ops=[QuotaOperation(key=RATE, value=1.0), QuotaOperation(key=RATE, value=2.0)],
        )
        self.alter_with("a key twice", [repeated])
        self.describe("after the wrong ones", ("user", EXACT, user), strict=True)
        self.describe("an unknown kind of entity", ("planet", EXACT, "earth"))
        self.describe("a kind twice", ("user", EXACT, user), ("user", ANY, None))
        self.describe("exactly nothing", ("user", EXACT, None))
        self.describe("the default with a name", ("user", DEFAULT, user))
        self.describe("an empty kind", ("", EXACT, "x"))
        self.describe("user and address", ("user", ANY, None), ("ip", ANY, None))
        self.describe("match type 9", ("user", 9, None))
        self.describe("match type -1", ("user", -1, None))

    def _removed(self) -> None:
        user, client = self.user, self.client
        self.alter(
            "all removed",
            ({"user": user, "client-id": client}, {RATE: None}),
            ({"user": user, "client-id": None}, {RATE: None}),
            ({"user": user}, {RATE: None}),
            ({"user": None, "client-id": client}, {RATE: None}),
            ({"user": None, "client-id": None}, {RATE: None}),
            ({"user": None}, {RATE: None}),
            ({"client-id": client}, {RATE: None, "request_percentage": None}),
            ({"client-id": None}, {RATE: None, "controller_mutation_rate": None}),
        )
        self.describe("nothing left")
