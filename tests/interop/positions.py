"""Proofs from the diaries of a group's members: every record was read, and no position ever went back.

Pure functions over the lines that `member` wrote. Reading a record twice is allowed (its commit may have been lost with
its reader); reading on from before an acknowledged commit, or from behind an unread record, is not.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Final

# Kinds of lines that end a member's time with a partition.
TAKEN: Final = ("revoked", "lost")


@dataclass(frozen=True, slots=True, order=True)
class Line:
    at_ns: int
    kind: str
    partition: int
    offset: int


def parse(text: str) -> list[Line]:
    """A diary's lines; the last may be cut where its process was killed."""
    whole = text[: text.rfind("\n") + 1]
    return [
        Line(int(at), kind, int(partition), int(offset))
        for at, kind, partition, offset in (line.split() for line in whole.splitlines())
    ]


@dataclass(slots=True)
class Findings:
    """Faults of a run. `unread` has (partition, offset); the other fields are descriptions."""

    unread: list[tuple[int, int]] = field(default_factory=list)
    went_back: list[str] = field(default_factory=list)
    skipped: list[str] = field(default_factory=list)

    @property
    def hold(self) -> bool:
        return not (self.unread or self.went_back or self.skipped)


@dataclass(slots=True)
class _Tenure:
    """A member's time with a partition: from the line that gave it to it to the line that took it, or to the end."""

    member: str
    since_ns: int
    read: list[Line] = field(default_factory=list)


def examine(diaries: Mapping[str, Iterable[Line]], ends: Mapping[int, int]) -> Findings:
    """Returns the faults in `diaries` by member, with the log end offset of each partition in `ends`; offsets have no
    gaps here.
    """
    findings = Findings()
    tenures, commits, asked = _tenures(diaries), _commits(diaries), _asked(diaries)
    for partition, end in ends.items():
        read = {line.offset for tenure in tenures[partition] for line in tenure.read}
        findings.unread += [(partition, offset) for offset in range(end) if offset not in read]
        for tenure in tenures[partition]:
            _examine_tenure(findings, partition, tenure, commits[partition], asked[partition])
        _examine_commits(findings, partition, commits[partition])
    return findings


def _tenures(diaries: Mapping[str, Iterable[Line]]) -> dict[int, list[_Tenure]]:
    tenures: dict[int, list[_Tenure]] = defaultdict(list)
    for member, lines in diaries.items():
        held: dict[int, _Tenure] = {}
        for line in lines:
            if line.kind == "assigned":
                held[line.partition] = _Tenure(member, line.at_ns)
                tenures[line.partition].append(held[line.partition])
            elif line.kind in TAKEN:
                held.pop(line.partition, None)
            elif line.kind == "read" and line.partition in held:
                held[line.partition].read.append(line)
    return tenures


# (when it was asked for, when it was acknowledged, the offset, the member)
_Commit = tuple[int, int, int, str]


def _commits(diaries: Mapping[str, Iterable[Line]]) -> dict[int, list[_Commit]]:
    commits: dict[int, list[_Commit]] = defaultdict(list)
    for member, lines in diaries.items():
        sent: dict[int, int] = {}
        for line in lines:
            if line.kind == "sends":
                sent[line.partition] = line.at_ns
            elif line.kind == "committed":
                commits[line.partition].append((sent[line.partition], line.at_ns, line.offset, member))
    return commits


def _asked(diaries: Mapping[str, Iterable[Line]]) -> dict[int, list[Line]]:
    """Commits asked for, whatever became of them."""
    asked: dict[int, list[Line]] = defaultdict(list)
    for lines in diaries.values():
        for line in lines:
            if line.kind == "sends":
                asked[line.partition].append(line)
    return asked


def _examine_tenure(
    found: Findings, partition: int, tenure: _Tenure, commits: list[_Commit], asked: list[Line]
) -> None:
    if not tenure.read:
        return
    who = f"{tenure.member}, partition {partition}"
    first = tenure.read[0]
    before = [offset for _, acknowledged_ns, offset, _ in commits if acknowledged_ns < tenure.since_ns]
    if before and first.offset < max(before):
        found.went_back.append(f"{who}: reads from {first.offset}, {max(before)} was committed before it came")
    furthest = max((line.offset for line in asked if line.at_ns < first.at_ns), default=0)
    if first.offset > furthest:
        found.skipped.append(f"{who}: reads from {first.offset}, nobody had come further than {furthest}")
    for earlier, later in zip(tenure.read, tenure.read[1:], strict=False):
        if later.offset <= earlier.offset:
            found.went_back.append(f"{who}: {later.offset} after {earlier.offset}")
        elif later.offset > earlier.offset + 1:
            found.skipped.append(f"{who}: {later.offset} after {earlier.offset}")


def _examine_commits(found: Findings, partition: int, commits: list[_Commit]) -> None:
    """A commit asked for after another was acknowledged is no earlier position."""
    furthest, by = -1, ""
    completed = sorted(commits, key=lambda commit: commit[1])
    at = 0
    for sent_ns, _, offset, member in sorted(commits):
        while at < len(completed) and completed[at][1] < sent_ns:
            if completed[at][2] > furthest:
                furthest, by = completed[at][2], completed[at][3]
            at += 1
        if offset < furthest:
            found.went_back.append(f"{member}, partition {partition}: commits {offset} after {by} committed {furthest}")


def stopped_in_vain(diaries: Mapping[str, Iterable[Line]]) -> list[str]:
    """Returns descriptions of partitions that a member lost and got back although nobody had them in between.

    In a cooperative rebalance a member loses only partitions that another one gets. This holds while nobody leaves in
    the middle of a rebalance: partitions on their way to a dead member may come back. `lost` partitions are left out:
    the coordinator took their member for dead.
    """
    moves = sorted(
        (line.at_ns, line.kind, line.partition, member)
        for member, lines in diaries.items()
        for line in lines
        if line.kind in ("assigned", "revoked")
    )
    stopped: dict[int, str] = {}
    result = []
    for _, kind, partition, member in moves:
        if kind == "revoked":
            stopped[partition] = member
        elif stopped.pop(partition, None) == member:
            result.append(f"{member}: stopped partition {partition} and went on with it")
    return result
