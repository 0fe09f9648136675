"""InitProducerId without a transaction, and what an idempotent producer may send (IDE-2…8)."""

from __future__ import annotations

from brokers.engine.protocol.apis import ApiKey
from brokers.engine.protocol.messages.transactions import InitProducerIdRequest
from tests.differential.batches import batch
from tests.differential.play import Player
from tests.differential.scripts.produce import produced

PREFIX = "diff.producers"


def script(player: Player) -> None:
    player.until_ready(ApiKey.INIT_PRODUCER_ID, 4, InitProducerIdRequest(transactional_id=None))
    for version in range(6):

        def ask(what: str, version: int = version, **fields: object) -> object:
            request = InitProducerIdRequest(transactional_id=None, transaction_timeout_ms=60_000, **fields)  # type: ignore[arg-type]
            return player.ask(f"init v{version}: {what}", ApiKey.INIT_PRODUCER_ID, version, request)

        ask("an id")
        if version >= 3:
            ask("an id with an old one", producer_id=1, producer_epoch=3)
            ask("an id without its epoch", producer_id=1)
            ask("an epoch without its id", producer_epoch=1)
    for version in range(3, 12):
        _sequences(player, version)


def _sequences(player: Player, version: int) -> None:
    topic = f"{PREFIX}.v{version}"
    player.make_topic(topic)
    init = InitProducerIdRequest(transactional_id=None, transaction_timeout_ms=60_000)
    producer_id = player.call(ApiKey.INIT_PRODUCER_ID, 4, init).producer_id

    def ask(what: str, sequence: int, *values: bytes, epoch: int = 0, producer: int | None = None) -> None:
        records = batch(
            *values,
            producer_id=producer_id if producer is None else producer,
            producer_epoch=epoch,
            base_sequence=sequence,
        )
        player.ask(f"v{version}: {what}", ApiKey.PRODUCE, version, produced(topic, records))

    ask("a first batch", 0, b"a", b"b")
    ask("the next", 2, b"c")
    ask("the next again", 2, b"c")
    ask("the first again", 0, b"a", b"b")
    ask("a gap", 9, b"x")
    ask("an overlap", 1, b"b", b"c")
    ask("behind", 1, b"x")
    for sequence in range(3, 9):
        ask(f"sequence {sequence}", sequence, b"d")
    ask("older than the five remembered", 0, b"a", b"b")
    ask("the oldest remembered", 4, b"d")
    ask("an epoch ahead, not from zero", 9, b"x", epoch=1)
    ask("an epoch ahead", 0, b"x", epoch=1)
    ask("an epoch behind", 9, b"x", epoch=0)
    ask("a stranger in the middle", 7, b"x", producer=producer_id + 1_000_000)
    ask("epoch -1", 0, b"x", epoch=-1, producer=producer_id + 1_000_001)
    ask("sequence -1", -1, b"x")
    ask("sequence -2", -2, b"x")
    ask("epoch negative", 0, b"x", epoch=-2)
