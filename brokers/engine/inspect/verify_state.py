"""Verification of a log's other files: leader epochs, producer snapshots, the topic id (LOG-4, LOG-13, LOG-30)."""

from __future__ import annotations

import base64
import re
from bisect import bisect_right
from itertools import pairwise
from pathlib import Path
from typing import Final

from brokers.engine.inspect.findings import Findings
from brokers.engine.inspect.reading import Batch
from brokers.engine.inspect.verify_transactions import TransactionCheck
from brokers.engine.records.batch import BatchHeader
from brokers.engine.storage import leader_epochs
from brokers.engine.storage.checkpoints import UnreadableCheckpoint, parse_lines, render_lines
from brokers.engine.storage.directories import PARTITION_METADATA_FILE
from brokers.engine.storage.indexes import Aborted
from brokers.engine.storage.producer_state import ProducerState, snapshot_path

NO_EPOCH: Final = -1
_METADATA: Final = re.compile(r"\Aversion: 0\ntopic_id: ([A-Za-z0-9_-]{22})\n?\Z")


def checkpoint_rows(path: Path, columns: int) -> list[tuple[str, ...]]:
    """Returns the rows of a checkpoint file, none if it does not exist.

    Raises UnreadableCheckpoint for a malformed file, and for a file that a broker would have written differently: with
    another separator, or numbers with a plus sign or leading zeros.
    """
    rows = [tuple(row) for row in parse_lines(path, columns, path.parent)]
    numbers = [number for row in rows for number in row[max(columns - 2, 0) :]]
    if any(str(int(number)) != number for number in numbers if _is_number(number)) or not all(map(_is_number, numbers)):
        raise UnreadableCheckpoint(f"{path.name} has a value that is not a number")
    if rows and path.read_bytes() != render_lines(rows):
        raise UnreadableCheckpoint(f"{path.name} has bytes that no broker writes")
    return rows


def _is_number(text: str) -> bool:
    return text.isascii() and text.removeprefix("-").isdecimal()


class EpochCheck:
    """Compares `leader-epoch-checkpoint` with the epochs of the batches."""

    def __init__(self, directory: Path, findings: Findings, log_start_offset: int) -> None:
        self.findings = findings
        self.log_start_offset = log_start_offset
        self.entries: list[tuple[int, int]] = []
        self._reported = False
        self._present = (directory / leader_epochs.FILE_NAME).exists()
        try:
            rows = checkpoint_rows(directory / leader_epochs.FILE_NAME, 2)
            self.entries = [(int(epoch), int(start)) for epoch, start in rows]
        except UnreadableCheckpoint as error:
            self._fault(str(error).removeprefix(f"{directory}/"))
        if any(a[0] >= b[0] or a[1] >= b[1] for a, b in pairwise(self.entries)):
            self._fault("epochs do not grow")
        if self._present and not self._reported and not self.entries:
            text = (directory / leader_epochs.FILE_NAME).read_bytes()
            if text != render_lines([]):
                self._fault("has bytes that no broker writes")

    def _fault(self, problem: str, offset: int | None = None) -> None:
        self._reported = True
        self.findings.report_fault(leader_epochs.FILE_NAME, problem, offset=offset)

    def add_batch(self, file: str, position: int, header: BatchHeader) -> None:
        """Checks one batch. Only the first contradiction of a wrong checkpoint is reported, as all others follow from
        it.
        """
        if self._reported or header.leader_epoch == NO_EPOCH:
            return
        if not self.entries:
            self._fault("knows no epoch, but batches carry some" if self._present else "is missing", header.base_offset)
            return
        # The log, and with it the first epoch, may start within a batch.
        is_within = header.base_offset < self.log_start_offset <= header.last_offset
        offset = self.log_start_offset if is_within else header.base_offset
        at = bisect_right(self.entries, offset, key=lambda entry: entry[1]) - 1
        if at < 0:
            if header.last_offset >= self.log_start_offset:
                self._fault(f"begins only at offset {self.entries[0][1]}", header.base_offset)
            return
        if self.entries[bisect_right(self.entries, header.last_offset, key=lambda entry: entry[1]) - 1][1] > offset:
            self._fault("an epoch begins within the batch", header.base_offset)
        elif self.entries[at][0] != header.leader_epoch:
            problem = f"leader epoch {header.leader_epoch}, the checkpoint says {self.entries[at][0]}"
            self.findings.report_fault(file, problem, position=position, offset=header.base_offset)

    def end(self, log_end_offset: int) -> None:
        """Checks that no epoch begins past the end of the log."""
        if self.entries and self.entries[-1][1] > log_end_offset and not self._reported:
            self._fault(f"epoch {self.entries[-1][0]} begins past the log's end", self.entries[-1][1])


class ProducerCheck:
    """Tracks the producers through the log and compares each snapshot with the batches before it."""

    def __init__(self, directory: Path, snapshots: list[int], findings: Findings, *, gaps: bool) -> None:
        self._directory = directory
        self._gaps = gaps
        self._remaining_snapshots = sorted(snapshots, reverse=True)
        self._findings = findings
        self._last: dict[int, tuple[int, int, int, int]] = {}
        self.transactions = TransactionCheck()

    def add_batch(self, batch: Batch) -> Aborted | None:
        """Tracks one batch; returns the aborted transaction if it is an abort marker."""
        header = batch.header
        self._check_snapshots_up_to(header.base_offset)
        if header.producer_id >= 0 and not header.is_control:
            self._last[header.producer_id] = (
                header.producer_epoch,
                header.last_sequence,
                header.last_offset,
                header.last_offset_delta,
            )
        return self.transactions.add_batch(batch)

    def end(self, log_end_offset: int) -> None:
        """Checks the remaining snapshots; a snapshot past the end of the log is a fault."""
        self._check_snapshots_up_to(log_end_offset)
        for offset in self._remaining_snapshots:
            name = snapshot_path("", offset).name
            self._findings.report_fault(name, f"is of an offset past the log's end {log_end_offset}", offset=offset)

    def _check_snapshots_up_to(self, offset: int) -> None:
        """Checks the snapshots of offsets up to `offset`."""
        while self._remaining_snapshots and self._remaining_snapshots[-1] <= offset:
            self._check(self._remaining_snapshots.pop())

    def _check(self, offset: int) -> None:
        path = snapshot_path(str(self._directory), offset)
        state = ProducerState()
        content = path.read_bytes()
        if not state.restore(content, offset) or len(content) != len(state.to_bytes()):
            self._findings.report_fault(
                path.name, "its checksum or version is wrong; an older one is used", offset=offset
            )
            return
        first_offset = self.transactions.first_offset
        for producer_id, entry in state.producers.items():
            first_offset_in_snapshot = entry.transaction_first_offset
            problem = (
                ""
                if self._gaps
                else self.transactions.find_fault(producer_id, first_offset_in_snapshot, entry.coordinator_epoch)
            )
            if problem:
                self._findings.report_fault(path.name, problem, offset=offset)
            if not entry.batches:
                continue
            batch = entry.batches[-1]
            stored = (entry.epoch, batch.last_sequence, batch.last_offset, batch.offset_delta)
            recorded = self._last.get(producer_id)
            known = first_offset is not None and batch.last_offset >= first_offset and not self._gaps
            if batch.last_offset >= offset or (known and recorded is not None and recorded != stored):
                before = "nothing" if recorded is None else f"sequence {recorded[1]} at offset {recorded[2]}"
                problem = f"producer {producer_id} wrote {before}, not {batch.last_sequence} at {batch.last_offset}"
                self._findings.report_fault(path.name, problem, offset=offset)


def check_topic_id(directory: Path, findings: Findings) -> str | None:
    """Returns the topic id in `partition.metadata`; None if it is missing or malformed."""
    path = directory / PARTITION_METADATA_FILE
    if not path.exists():
        findings.report_note(path.name, "is missing; the broker takes the topic's id from ZooKeeper")
        return None
    match = _METADATA.match(path.read_bytes().decode("ascii", errors="replace"))
    if match is None:
        findings.report_fault(path.name, "has no valid topic id")
        return None
    decoded = base64.urlsafe_b64decode(match[1] + "==")
    if base64.urlsafe_b64encode(decoded).rstrip(b"=").decode() != match[1]:
        findings.report_fault(path.name, "has a topic id in a form that no broker writes")
    return match[1]
