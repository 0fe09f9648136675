"""DescribeProducers, DescribeTransactions and ListTransactions in every state of a transaction."""

from __future__ import annotations

from brokers.engine.protocol.apis import ApiKey
from brokers.engine.protocol.messages.producers import (
    DescribeProducersRequest,
    DescribeProducersTopic,
    DescribeTransactionsRequest,
    ListTransactionsRequest,
)
from tests.differential.batches import batch
from tests.differential.members import begin_script
from tests.differential.play import Player
from tests.differential.scripts.produce import produced
from tests.differential.transacting import Transactional

PREFIX = "diff.views"
TOPIC, OTHER = f"{PREFIX}.topic", f"{PREFIX}.other"
STATES = ("Empty", "Ongoing", "PrepareCommit", "PrepareAbort", "CompleteCommit", "CompleteAbort", "Dead")


def script(player: Player) -> None:
    begin_script(player, PREFIX)
    player.make_topic(TOPIC, 4)
    player.make_topic(OTHER)
    _listed(player, "nothing yet", [])
    made = {
        name: Transactional(player, f"{PREFIX}.{name}") for name in ("empty", "open", "committed", "aborted", "bare")
    }
    for producer in made.values():
        producer.init(None)
    made["bare"].add(None, {TOPIC: [2]})
    made["open"].add(None, {TOPIC: [0, 3], OTHER: [0]})
    made["open"].produce(None, TOPIC, b"a", b"b")
    for name, committed in (("committed", True), ("aborted", False)):
        made[name].add(None, {TOPIC: [0]})
        made[name].produce(None, TOPIC, b"c", b"d", b"e")
        made[name].finish(committed=committed)
    _idempotent(player)
    _described(player, list(made))
    _listed(player, "all states", [made[name].id for name in ("empty", "open")])
    _producers(player, "open")
    made["open"].finish(committed=True)
    _producers(player, "committed")
    made["open"].init(None)
    _producers(player, "with a new epoch")
    made["open"].add(None, {TOPIC: [0]})
    made["open"].produce(None, TOPIC, b"f")
    _producers(player, "open again")
    made["open"].finish(committed=False)
    made["bare"].finish(committed=False)
    _producers(player, "aborted")
    _described(player, ["open", "bare"], "at the end")


def _idempotent(player: Player) -> None:
    """A producer without transactions, and one whose epoch has moved on."""
    records = batch(b"x", producer_id=5_000_000, producer_epoch=0, base_sequence=0)
    player.call(ApiKey.PRODUCE, 9, produced(OTHER, records))
    records = batch(b"x", b"y", producer_id=5_000_001, producer_epoch=3, base_sequence=0)
    player.call(ApiKey.PRODUCE, 9, produced(OTHER, records))


def _described(player: Player, names: list[str], at: str = "described") -> None:
    def ask(what: str, *ids: str) -> None:
        request = DescribeTransactionsRequest(transactional_ids=list(ids))
        player.ask(f"{at}: {what}", ApiKey.DESCRIBE_TRANSACTIONS, 0, request)

    for name in names:
        ask(name, f"{PREFIX}.{name}")
    ask("unknown", f"{PREFIX}.unknown")
    ask("no name", "")
    ask("none")
    ask("several", f"{PREFIX}.open", f"{PREFIX}.unknown")
    ask("one twice", f"{PREFIX}.open", f"{PREFIX}.open")


def _listed(player: Player, at: str, ids: list[int]) -> None:
    for version in (0, 1):

        def ask(what: str, version: int = version, **filters: object) -> None:
            request = ListTransactionsRequest(**filters)  # type: ignore[arg-type]
            player.ask(f"list v{version}, {at}: {what}", ApiKey.LIST_TRANSACTIONS, version, request)

        ask("all")
        for state in STATES:
            ask(f"state {state}", state_filters=[state])
        ask("two states", state_filters=["Ongoing", "Empty"])
        ask("an unknown state", state_filters=["Lively"])
        ask("a known and an unknown state", state_filters=["Lively", "Ongoing"])
        ask("a state in small letters", state_filters=["ongoing"])
        ask("a producer of nobody", producer_id_filters=[1 << 40])
        if ids:
            ask("producers", producer_id_filters=ids)
            ask("a producer in a state", producer_id_filters=ids, state_filters=["Empty"])
        if version >= 1:
            for duration_ms in (0, -2, 3_600_000):
                ask(f"open for {duration_ms}", duration_filter=duration_ms)


def _producers(player: Player, at: str) -> None:
    def ask(what: str, topics: dict[str, list[int]]) -> None:
        wanted = [DescribeProducersTopic(name=name, partition_indexes=indexes) for name, indexes in topics.items()]
        player.ask(f"producers, {at}: {what}", ApiKey.DESCRIBE_PRODUCERS, 0, DescribeProducersRequest(topics=wanted))

    ask("of a partition", {TOPIC: [0]})
    ask("of two topics", {TOPIC: [0, 2, 3], OTHER: [0]})
    ask("of an unknown partition", {TOPIC: [9, -1]})
    ask("of an unknown topic", {f"{PREFIX}.unknown": [0]})
    ask("of bad names", {"a/b": [0], "": [0]})
    ask("of no partitions", {TOPIC: []})
    ask("of nothing", {})
