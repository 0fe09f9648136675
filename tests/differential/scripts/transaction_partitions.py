"""AddPartitionsToTxn in every version (TXN-7); from version 4 on as brokers ask each other, to verify too (TXN-27)."""

from __future__ import annotations

from typing import Any

from brokers.engine.protocol.apis import ApiKey
from brokers.engine.protocol.messages.transactions import AddPartitionsToTxnRequest, AddPartitionsToTxnTransaction
from tests.differential.members import begin_script
from tests.differential.play import Player
from tests.differential.transacting import BATCHES_FROM, Transactional

PREFIX = "diff.adding"
TOPIC, OTHER = f"{PREFIX}.topic", f"{PREFIX}.other"


def script(player: Player) -> None:
    begin_script(player, PREFIX)
    player.make_topic(TOPIC, 3)
    player.make_topic(OTHER)
    for version in range(BATCHES_FROM):
        _asked(player, version)
    for version in range(BATCHES_FROM, 6):
        _between_brokers(player, version)


def _asked(player: Player, version: int) -> None:
    item = Transactional(player, f"{PREFIX}.v{version}")

    def ask(what: str, topics: dict[str, list[int]] | None = None, **changes: Any) -> None:
        item.add(f"v{version}: {what}", {TOPIC: [0]} if topics is None else topics, version, **changes)

    ask("an id that nobody has")
    ask("an id that nobody has, an unknown topic", {f"{PREFIX}.unknown": [0]})
    ask("an empty id", transactional_id="")
    item.init(None)
    ask("no topics", {})
    ask("a topic without partitions", {TOPIC: []})
    ask("unknown topic", {f"{PREFIX}.unknown": [0]})
    ask("a right and an unknown partition", {TOPIC: [0, 9], OTHER: [0]})
    ask("negative partition", {TOPIC: [-1]})
    ask("bad topic names", {"a/b": [0], "": [0]})
    ask("another producer id", producer_id=item.id + 1_000_000)
    ask("producer id -1", producer_id=-1)
    ask("the epoch ahead", producer_epoch=item.epoch + 1)
    ask("epoch -1", producer_epoch=-1)
    ask("a first partition")
    ask("it again")
    ask("one more and the first", {TOPIC: [0, 1]})
    ask("a partition twice", {TOPIC: [2, 2]})
    ask("one of another topic", {OTHER: [0]})
    ask("an unknown one in a transaction", {OTHER: [0, 3]})
    ask("the epoch ahead in a transaction", producer_epoch=item.epoch + 1)
    item.finish(committed=True)
    ask("after the commit", {TOPIC: [1]})
    item.finish(committed=False)
    ask("after the abort", {TOPIC: [0, 2]})
    item.finish(committed=True)
    item.init(None)
    ask("the epoch before", producer_epoch=item.epoch - 1)
    ask("the epoch before, no topics", {}, producer_epoch=item.epoch - 1)


def _between_brokers(player: Player, version: int) -> None:
    inside = player.operator()

    def ask(what: str, *entries: AddPartitionsToTxnTransaction) -> None:
        request = AddPartitionsToTxnRequest(transactions=list(entries))
        silent = not entries  # what nobody is asked about may stay unanswered
        inside.ask(f"v{version}: {what}", ApiKey.ADD_PARTITIONS_TO_TXN, version, request, may_be_silent=silent)

    item, two = (Transactional(player, f"{PREFIX}.v{version}.{name}") for name in ("one", "two"))
    both, first = {TOPIC: [0, 1]}, {TOPIC: [0]}
    ask("no transactions")
    ask("verify, an id that nobody has", item.entry(first, verify_only=True))
    ask("an id that nobody has", item.entry(first))
    ask("verify, an empty id", item.entry(first, verify_only=True, transactional_id=""))
    item.init(None)
    two.init(None)
    ask("verify, nothing added", item.entry(first, verify_only=True))
    ask("add one", item.entry(first))
    ask("verify the one", item.entry(first, verify_only=True))
    ask("verify it and one more", item.entry(both, verify_only=True))
    ask("verify no topics", item.entry({}, verify_only=True))
    ask("verify an unknown topic", item.entry({f"{PREFIX}.unknown": [0]}, verify_only=True))
    ask("verify a right and an unknown partition", item.entry({TOPIC: [0, 9]}, verify_only=True))
    ask("verify another producer id", item.entry(first, verify_only=True, producer_id=item.id + 1_000_000))
    ask("verify the epoch ahead", item.entry(first, verify_only=True, producer_epoch=item.epoch + 1))
    ask("verify the epoch before", item.entry(first, verify_only=True, producer_epoch=item.epoch - 1))
    ask("two transactions", item.entry(first, verify_only=True), two.entry(both))
    ask(
        "a right one and one of nobody",
        two.entry(first, verify_only=True),
        item.entry(first, transactional_id="nobody"),
    )
    ask("add an unknown one", item.entry({TOPIC: [9]}))
    ask("add no topics", item.entry({}))
    item.finish(committed=True)
    ask("verify after the commit", item.entry(first, verify_only=True))
    ask("verify a transaction twice", two.entry(first, verify_only=True), two.entry(both, verify_only=True))
    two.finish(committed=False)
    ask("verify after the abort", two.entry(first, verify_only=True))
