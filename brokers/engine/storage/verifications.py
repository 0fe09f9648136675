"""Producers that a partition is asking the transaction coordinator about (TXN-27).

Between the coordinator's word and the append the transaction may end, and another one begin that knows nothing of the
partition. So the question gets a token, which any batch of a transaction of that producer, marker or data, takes away:
only who still holds it may open a transaction in the log.
"""

from __future__ import annotations

from typing import Final

# The producer's transaction is open here already: nothing to ask. What `begin` answers is greater.
NO_VERIFICATION_TOKEN: Final = 0
# A client that invents producer ids cannot make the broker grow. Who is forgotten is not verified, and asks again.
VERIFICATIONS_MAX: Final = 20_000


class Verification:
    """Kept until the transaction opens: who failed once may try again, and nothing may overtake it."""

    __slots__ = ("begun_ms", "epoch", "lowest_sequence", "verification_token")

    def __init__(self, verification_token: int, epoch: int, sequence: int, begun_ms: int) -> None:
        self.verification_token = verification_token
        self.epoch = epoch
        self.lowest_sequence = sequence
        self.begun_ms = begun_ms


class Verifications:
    """Of one partition, by producer id."""

    __slots__ = ("_by_producer", "_made")

    def __init__(self) -> None:
        self._by_producer: dict[int, Verification] = {}
        self._made = 0

    def __len__(self) -> int:
        return len(self._by_producer)

    def begin(self, producer_id: int, epoch: int, sequence: int, now_ms: int) -> int:
        """the token; requests of one producer that ask at the same time share it."""
        producer = self._by_producer.get(producer_id)
        if producer is None:
            if len(self._by_producer) >= VERIFICATIONS_MAX:
                del self._by_producer[next(iter(self._by_producer))]
            self._made += 1
            producer = self._by_producer[producer_id] = Verification(self._made, epoch, sequence, now_ms)
        elif epoch > producer.epoch:
            producer.epoch = epoch
            producer.lowest_sequence = sequence
        elif epoch == producer.epoch and sequence < producer.lowest_sequence:
            producer.lowest_sequence = sequence
        return producer.verification_token

    def holds(self, producer_id: int, verification_token: int) -> bool:
        producer = self._by_producer.get(producer_id)
        return producer is not None and producer.verification_token == verification_token

    def overtakes(self, producer_id: int, epoch: int, sequence: int) -> bool:
        """Whether a batch of an earlier sequence of the same epoch was seen that is not in the log yet."""
        producer = self._by_producer.get(producer_id)
        return producer is not None and epoch == producer.epoch and sequence > producer.lowest_sequence

    def complete(self, producer_id: int) -> None:
        """A batch of one of the producer's transactions is in the log."""
        if self._by_producer:
            self._by_producer.pop(producer_id, None)

    def expire(self, now_ms: int, after_ms: int) -> None:
        gone = [key for key, result in self._by_producer.items() if now_ms - result.begun_ms >= after_ms]
        for key in gone:
            del self._by_producer[key]

    def clear(self) -> None:
        self._by_producer.clear()
