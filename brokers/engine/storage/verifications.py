"""Pending verifications of producers with the transaction coordinator (TXN-27).

Between the coordinator's answer and the append, the transaction may end and another begin that does not include the
partition. So each verification has a token, which any transactional batch or marker of that producer invalidates: only
a valid token may open a transaction in the log.
"""

from __future__ import annotations

from typing import Final

# Token for a transaction that is already open here and needs no verification; `begin` returns greater ones.
NO_VERIFICATION_TOKEN: Final = 0
# Maximum number of verifications, which bounds memory against invented producer ids. A producer that was removed is not
# verified and requests it again.
VERIFICATIONS_MAX: Final = 20_000


class Verification:
    """A pending verification. It remains until the transaction opens, because a failed request may be retried and no
    later batch may overtake it.
    """

    __slots__ = ("begun_ms", "epoch", "lowest_sequence", "verification_token")

    def __init__(self, verification_token: int, epoch: int, sequence: int, begun_ms: int) -> None:
        self.verification_token = verification_token
        self.epoch = epoch
        self.lowest_sequence = sequence
        self.begun_ms = begun_ms


class Verifications:
    """Verifications of one partition, by producer id."""

    __slots__ = ("_last_token", "_verification_by_producer")

    def __init__(self) -> None:
        self._verification_by_producer: dict[int, Verification] = {}
        self._last_token = 0

    def __len__(self) -> int:
        return len(self._verification_by_producer)

    def begin(self, producer_id: int, epoch: int, sequence: int, now_ms: int) -> int:
        """Returns the token; concurrent requests of one producer share it."""
        verification = self._verification_by_producer.get(producer_id)
        if verification is None:
            if len(self._verification_by_producer) >= VERIFICATIONS_MAX:
                del self._verification_by_producer[next(iter(self._verification_by_producer))]
            self._last_token += 1
            verification = self._verification_by_producer[producer_id] = Verification(
                self._last_token, epoch, sequence, now_ms
            )
        elif epoch > verification.epoch:
            verification.epoch = epoch
            verification.lowest_sequence = sequence
        elif epoch == verification.epoch and sequence < verification.lowest_sequence:
            verification.lowest_sequence = sequence
        return verification.verification_token

    def is_valid(self, producer_id: int, verification_token: int) -> bool:
        """True if the token is that of the producer's pending verification."""
        verification = self._verification_by_producer.get(producer_id)
        return verification is not None and verification.verification_token == verification_token

    def is_out_of_order(self, producer_id: int, epoch: int, sequence: int) -> bool:
        """True if a batch with an earlier sequence of the same epoch is pending and not in the log yet."""
        verification = self._verification_by_producer.get(producer_id)
        return verification is not None and epoch == verification.epoch and sequence > verification.lowest_sequence

    def complete(self, producer_id: int) -> None:
        """Removes the verification when a transactional batch of the producer is in the log."""
        if self._verification_by_producer:
            self._verification_by_producer.pop(producer_id, None)

    def expire(self, now_ms: int, age_ms_min: int) -> None:
        """Removes the verifications that began at least `age_ms_min` ago."""
        expired = [
            producer_id
            for producer_id, verification in self._verification_by_producer.items()
            if now_ms - verification.begun_ms >= age_ms_min
        ]
        for producer_id in expired:
            del self._verification_by_producer[producer_id]

    def clear(self) -> None:
        self._verification_by_producer.clear()
