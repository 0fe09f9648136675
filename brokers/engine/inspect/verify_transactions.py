"""Verification of transactions in a log: the open ones, and the outcomes of the others (TXN-14, LOG-12)."""

from __future__ import annotations

from pathlib import Path
from typing import NamedTuple

from brokers.engine.inspect.findings import Findings
from brokers.engine.inspect.reading import TRANSACTION_ENTRY, Batch, IndexEntries, read_index_entries
from brokers.engine.records.control import ABORT, read_marker
from brokers.engine.storage.indexes import ABORTED_VERSION, Aborted

NOT_OPEN = -1


class TransactionCheck:
    """State of a log's transactions, built batch by batch; `first_offset` is the offset of the first batch, or None."""

    def __init__(self) -> None:
        self.first_offset: int | None = None
        self._open_first_offsets: dict[int, int] = {}
        self._coordinator_epochs: dict[int, int] = {}

    def add_batch(self, batch: Batch) -> Aborted | None:
        """Tracks one batch; returns the aborted transaction if it is an abort marker."""
        header = batch.header
        if self.first_offset is None:
            self.first_offset = header.base_offset
        if not header.is_control:
            if header.is_transactional:
                self._open_first_offsets.setdefault(header.producer_id, header.base_offset)
            return None
        marker = read_marker(batch.data) if batch.is_intact else None
        if marker is None:
            return None
        self._coordinator_epochs[header.producer_id] = marker.coordinator_epoch
        first = self._open_first_offsets.pop(header.producer_id, NOT_OPEN)
        if first == NOT_OPEN or marker.kind != ABORT:
            return None
        return Aborted(
            header.producer_id,
            first,
            header.last_offset,
            min(self._open_first_offsets.values(), default=header.next_offset),
        )

    def find_fault(self, producer_id: int, first_offset: int, coordinator_epoch: int) -> str:
        """Returns a text on how a snapshot's state of a producer contradicts the log so far, "" if it agrees with it.

        Transactions that began before the log cannot be checked.
        """
        if self.first_offset is None or 0 <= first_offset < self.first_offset:
            return ""
        first = self._open_first_offsets.get(producer_id, NOT_OPEN)
        if first != first_offset:
            state_text = "no open transaction" if first == NOT_OPEN else f"a transaction open from offset {first}"
            return f"producer {producer_id} had {state_text}, not {first_offset}"
        last_epoch = self._coordinator_epochs.get(producer_id, coordinator_epoch)
        if last_epoch != coordinator_epoch:
            return (
                f"the last marker of producer {producer_id} has coordinator epoch {last_epoch}, not {coordinator_epoch}"
            )
        return ""


class EndedTransactions(NamedTuple):
    """Ended transactions of one segment: the aborted ones, and the producer of each marker by its offset.

    `log_start_offset` is the log's first offset.
    """

    aborted: list[Aborted]
    markers: dict[int, int]
    log_start_offset: int


def check_entries(path: Path, ended: EndedTransactions, findings: Findings, *, gaps: bool, whole: bool) -> None:
    """Compares a `.txnindex` with the transactions that ended in its segment.

    With `gaps` compaction may have removed the records of some transactions. With `whole` no entry may be missing.
    """
    index = read_index_entries(path, TRANSACTION_ENTRY) if path.exists() else IndexEntries([], 0, 0)
    if index.odd_bytes:
        findings.report_fault(path.name, f"{index.odd_bytes} bytes at its end are not a whole entry")
    if index.zero_bytes:
        findings.report_note(path.name, f"{index.zero_bytes} bytes of zeros at its end, as Apache Kafka preallocates")
    missing = {aborted.marker_offset: aborted for aborted in ended.aborted}
    previous_offset = -1
    for number, (version, *fields) in enumerate(index.entries):
        entry = Aborted(*fields)
        offset = entry.marker_offset
        expected = missing.pop(offset, None)
        problem = ""
        if version != ABORTED_VERSION or offset <= previous_offset or not 0 <= entry.first_offset <= offset:
            problem = "is not a valid aborted transaction"
        elif expected is not None and not gaps and not _agrees_with_log(entry, expected, ended.log_start_offset):
            problem = f"says {tuple(entry)}, the log {tuple(expected)}"
        elif ended.markers.get(offset) != entry.producer_id or (
            expected is None and not gaps and entry.first_offset >= ended.log_start_offset
        ):
            problem = f"producer {entry.producer_id} ends no transaction at this offset"
        if problem:
            findings.report_fault(path.name, problem, position=number * TRANSACTION_ENTRY.size, offset=offset)
        previous_offset = offset
    if missing and whole and not gaps:
        offset = min(missing)
        findings.report_fault(
            path.name, f"does not list the transaction that is aborted at offset {offset}", offset=offset
        )


def _agrees_with_log(entry: Aborted, expected: Aborted, log_start_offset: int) -> bool:
    """True if an entry agrees with the log.

    Offsets before the log's start cannot be compared: the beginning of the transaction, or of another one that was open
    at the same time, may have been deleted.
    """
    first_agrees = entry.first_offset == expected.first_offset or 0 <= entry.first_offset < log_start_offset
    stable_agrees = entry.stable_offset == expected.stable_offset or 0 <= entry.stable_offset < log_start_offset
    return entry.producer_id == expected.producer_id and first_agrees and stable_agrees
