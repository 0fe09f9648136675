"""Promises of transactions: atomic and final.

Times are microseconds of the world: one action was before another if its response came before the other's request.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, NamedTuple

from tests.simulation.cluster.promises import BrokenPromise
from tests.simulation.coordinators.group_promises import Commit, GroupPromises
from tests.simulation.coordinators.ledger import Entry

NEVER_US: Final = 1 << 62
NOTHING: Final = -1


class Initialised(NamedTuple):
    """Producer id and epoch that a producer got for a transactional id."""

    client: str
    producer_id: int
    producer_epoch: int
    at_us: int


class Transaction:
    """A transaction as its producer sees it.

    `asked_us` is the time of the first request to commit, `answered_us` the time at which the outcome `sent` was
    confirmed. `outcome` is the outcome that the cluster shows, None before it shows any.
    """

    def __init__(self, id: str, number: int, by: Initialised, begun_us: int) -> None:
        self.id = id
        self.number = number
        self.by = by
        self.begun_us = begun_us
        self.asked_us = NEVER_US
        self.answered_us = NEVER_US
        self.sent: bool | None = None
        self.outcome: bool | None = None
        self.shown = ""
        self.ended_at: set[int] = set()
        # (partition, base offset, first value) of acknowledged batches.
        self.acknowledged: list[tuple[int, int, bytes]] = []
        self.offsets_acknowledged = False
        # Commits of its producer as a member of a group.
        self.commits: list[Commit] = []

    def __str__(self) -> str:
        return f"transaction {self.number} of {self.id} by {self.by.client} (epoch {self.by.producer_epoch})"


class TransactionPromises:
    """Promises of all transactions; methods raise BrokenPromise."""

    def __init__(self, partitions: int, groups: GroupPromises) -> None:
        self._groups = groups
        groups.on_shown = self._on_shown
        self.transactions: list[Transaction] = []
        self._initialised: dict[str, list[Initialised]] = {}
        self._values: dict[bytes, Transaction] = {}
        self._found: dict[bytes, tuple[int, int]] = {}
        self._open: list[dict[int, list[Transaction]]] = [{} for _ in range(partitions)]
        self._epochs: list[dict[int, int]] = [{} for _ in range(partitions)]
        # Coordinator epoch of the last marker, by producer id.
        self._coordinators: list[dict[int, int]] = [{} for _ in range(partitions)]
        self._offsets: list[dict[int, Entry]] = [{} for _ in range(partitions)]
        # By partition and offset: the value that a `read_committed` reader got, None if it got none.
        self._read: list[dict[int, tuple[bytes | None, str]]] = [{} for _ in range(partitions)]
        self._seen: dict[str, tuple[int, int]] = {}
        self.commits = 0
        self.aborts = 0
        self.records_read = 0

    # -- producers -----------------------------------------------------------------------------------------------------

    def initialised(self, id: str, given: Initialised, asked_us: int) -> None:
        known = self._initialised.setdefault(id, [])
        for before in known:
            if before.at_us >= asked_us:
                continue
            if before.producer_id != given.producer_id or before.producer_epoch >= given.producer_epoch:
                raise BrokenPromise(f"the epochs of {id} decrease: {given} follows {before}")
        known.append(given)

    def begin(self, id: str, by: Initialised, now_us: int) -> Transaction:
        transaction = Transaction(id, len(self.transactions), by, now_us)
        self.transactions.append(transaction)
        return transaction

    def writes(self, transaction: Transaction, values: Sequence[bytes]) -> None:
        for value in values:
            self._values[value] = transaction

    def sent(self, transaction: Transaction, committed: bool, now_us: int) -> None:
        """Notes an EndTxn that was answered without error."""
        if committed:
            self._check_fenced(transaction, "is acknowledged as committed")
            self.commits += 1
        else:
            self.aborts += 1
        transaction.sent = committed
        transaction.answered_us = now_us
        for commit in transaction.commits if committed else ():
            commit.decided_us = now_us
        if transaction.outcome is not None and transaction.outcome is not committed:
            raise BrokenPromise(f"{transaction} is acknowledged as {_word(committed)}, but was {transaction.shown}")

    def _check_fenced(self, transaction: Transaction, how: str) -> None:
        """Checks that no producer commits after another one got its transactional id."""
        for later in self._initialised.get(transaction.id, ()):
            if later.producer_epoch > transaction.by.producer_epoch and later.at_us < transaction.asked_us:
                raise BrokenPromise(f"{transaction} {how} although it was fenced by {later}")

    # -- logs ----------------------------------------------------------------------------------------------------------

    def on_entry(self, index: int, entry: Entry) -> None:
        """Checks the next committed batch of a partition."""
        epochs = self._epochs[index]
        if entry.producer_epoch < epochs.get(entry.producer_id, -1):
            raise BrokenPromise(f"{entry} in partition {index} has a fenced producer epoch")
        epochs[entry.producer_id] = entry.producer_epoch
        self._offsets[index][entry.base_offset] = entry
        if entry.committed is None:
            self._on_data(index, entry)
            return
        coordinators = self._coordinators[index]
        if entry.coordinator_epoch < coordinators.get(entry.producer_id, -1):
            raise BrokenPromise(f"{entry} in partition {index} is from a deposed coordinator")
        coordinators[entry.producer_id] = entry.coordinator_epoch
        for transaction in self._open[index].pop(entry.producer_id, ()):
            transaction.ended_at.add(index)
            self.show(transaction, entry.committed, f"by {entry} in partition {index}")

    def _on_data(self, index: int, entry: Entry) -> None:
        for at, value in enumerate(entry.values):
            transaction = self._values.get(value)
            if transaction is None:
                raise BrokenPromise(f"{entry} in partition {index} was never sent")
            before = self._found.setdefault(value, (index, entry.base_offset + at))
            if before != (index, entry.base_offset + at):
                raise BrokenPromise(f"{value!r} is stored twice, at {before} and at {index}:{entry.base_offset + at}")
            if (entry.producer_id, entry.producer_epoch) != transaction.by[1:3]:
                raise BrokenPromise(
                    f"{entry} in partition {index} belongs to {transaction}, of another producer id or epoch"
                )
            if index in transaction.ended_at:
                raise BrokenPromise(f"{entry} in partition {index} follows the marker of {transaction}")
            open_here = self._open[index].setdefault(entry.producer_id, [])
            if transaction not in open_here:
                open_here.append(transaction)
                if len(open_here) > 1:
                    raise BrokenPromise(f"{entry} in partition {index} is within {open_here[0]}")

    def show(self, transaction: Transaction, committed: bool, where: str) -> None:
        """Checks an outcome of a transaction that the cluster shows."""
        if transaction.outcome is None:
            transaction.outcome = committed
            transaction.shown = f"{_word(committed)} {where}"
        elif transaction.outcome is not committed:
            raise BrokenPromise(f"{transaction} is {_word(committed)} {where}, but {transaction.shown}")
        if committed:
            if transaction.asked_us == NEVER_US:
                raise BrokenPromise(f"{transaction} is committed {where} without a request to commit")
            self._check_fenced(transaction, f"is committed {where}")
            for commit in transaction.commits:
                self._groups.counts(commit)
        if transaction.sent is not None and transaction.sent is not committed:
            raise BrokenPromise(
                f"{transaction} was acknowledged as {_word(transaction.sent)}, but is {_word(committed)} {where}"
            )

    def _on_shown(self, transaction: object, where: str) -> None:
        assert isinstance(transaction, Transaction)
        self.show(transaction, True, where)

    # -- readers of committed data -------------------------------------------------------------------------------------

    def read(self, index: int, first: int, last: int, shown: dict[int, bytes], client: str) -> None:
        """Checks what a reader got from `first` to `last`; `shown` are the values that an application sees."""
        for offset in range(first, last + 1):
            value = shown.get(offset)
            known = self._read[index].setdefault(offset, (value, client))
            if known[0] != value:
                raise BrokenPromise(f"{client} reads {value!r} at {index}:{offset}, but {known[1]} read {known[0]!r}")
            if value is not None:
                self.records_read += 1
                transaction = self._values.get(value)
                if transaction is not None:
                    self.show(transaction, True, f"for {client}, who reads {index}:{offset}")

    def offsets_found(self, id: str, number: int, client: str, asked_us: int, at_us: int, *, is_stable: bool) -> None:
        """Checks that the committed offsets are those of transaction `number`, -1 for none.

        With `is_stable` the reader refuses offsets while a transaction is open.
        """
        seen, seen_us = self._seen.get(id, (NOTHING, 0))
        if number < seen and seen_us < asked_us:
            raise BrokenPromise(
                f"{client} fetches the offsets of transaction {number} of {id}, after those of {seen} were fetched"
            )
        if number > seen:
            self._seen[id] = (number, at_us)
        if number != NOTHING:
            if not 0 <= number < len(self.transactions) or self.transactions[number].id != id:
                raise BrokenPromise(
                    f"{client} fetches offsets of transaction {number} of {id}, which were never committed"
                )
            self.show(self.transactions[number], True, f"for {client}, who fetches its offsets")
        for later in self.transactions[number + 1 :] if is_stable else ():
            if later.id == id and later.offsets_acknowledged and later.sent and later.answered_us < asked_us:
                raise BrokenPromise(
                    f"{client} fetches the offsets of transaction {number} of {id}; those of {later} are lost"
                )

    # -- at the end ----------------------------------------------------------------------------------------------------

    def nothing_open(self) -> None:
        """Checks at the end that everything acknowledged is present, and that all transactions have ended."""
        for index, producers in enumerate(self._open):
            for producer_id, transactions in producers.items():
                if transactions:
                    raise BrokenPromise(
                        f"{transactions[0]} of producer {producer_id} has no marker in partition {index}"
                    )
        for transaction in self.transactions:
            for index, base_offset, value in transaction.acknowledged:
                entry = self._offsets[index].get(base_offset)
                if entry is None or value not in entry.values:
                    raise BrokenPromise(
                        f"{value!r} of {transaction} was acknowledged at {index}:{base_offset}, which holds {entry}"
                    )
                if transaction.sent and transaction.outcome is not True:
                    raise BrokenPromise(f"{transaction} was acknowledged as committed, but has no outcome")
        lying = {place: value for value, place in self._found.items()}
        for index, reads in enumerate(self._read):
            for offset, (given, client) in reads.items():
                value = lying.get((index, offset))
                if given is None and value is not None and self._values[value].outcome:
                    transaction = self._values[value]
                    raise BrokenPromise(f"{client} missed {value!r} at {index}:{offset} of {transaction}")


def _word(committed: bool) -> str:
    return "committed" if committed else "aborted"
