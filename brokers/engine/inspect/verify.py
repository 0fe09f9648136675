"""The command `verify`: reads whole logs and compares their files with each other. It never writes."""

from __future__ import annotations

from pathlib import Path
from typing import Final

from brokers.contract.partitions import PartitionKey
from brokers.engine.inspect.directories import Logs, PartitionDirectory
from brokers.engine.inspect.findings import KIND, Emit, Findings
from brokers.engine.inspect.reading import list_segment_files
from brokers.engine.inspect.verify_segments import Rules, SegmentCheck
from brokers.engine.inspect.verify_state import EpochCheck, ProducerCheck, check_topic_id, checkpoint_rows
from brokers.engine.records.batch import LONG_MAX
from brokers.engine.storage import checkpoints, leader_epochs
from brokers.engine.storage.directories import CLEAN_SHUTDOWN_FILE, META_FILE, PARTITION_METADATA_FILE
from brokers.engine.storage.producer_state import SNAPSHOT_SUFFIX
from brokers.engine.storage.segment import INDEX_SUFFIX, LOG_SUFFIX, TIME_INDEX_SUFFIX, TRANSACTION_INDEX_SUFFIX

CLEANER_OFFSETS: Final = "cleaner-offset-checkpoint"
CHECKPOINTS: Final = (
    checkpoints.RECOVERY_POINTS,
    checkpoints.LOG_START_OFFSETS,
    checkpoints.HIGH_WATERMARKS,
    CLEANER_OFFSETS,
)
KNOWN_FILES: Final = {leader_epochs.FILE_NAME, PARTITION_METADATA_FILE}
INDEX_SUFFIXES: Final = (INDEX_SUFFIX, TIME_INDEX_SUFFIX, TRANSACTION_INDEX_SUFFIX)
TRANSIENT_SUFFIXES: Final = (".deleted", ".cleaned", ".swap", ".tmp")

Offsets = dict[PartitionKey, int]


def run(logs: Logs, emit: Emit, *, deep: bool = True, compacted: bool = False) -> Findings:
    """Verifies every partition of `logs`; the last row has the totals."""
    findings = Findings(emit)
    checkpoint_offsets = {name: _read_checkpoint(logs.root, name, findings) for name in CHECKPOINTS}
    is_clean_shutdown = (logs.root / CLEAN_SHUTDOWN_FILE).exists()
    if logs.whole and not (logs.root / META_FILE).exists():
        findings.report_note(META_FILE, "is missing: no broker has opened this directory")
    topic_ids: dict[str, str] = {}
    for partition in logs.partitions:
        findings.partition = partition.name
        key = (partition.topic, partition.number)
        gaps = compacted or key in checkpoint_offsets[CLEANER_OFFSETS]
        start = checkpoint_offsets[checkpoints.LOG_START_OFFSETS].get(key, 0)
        recovery_point = checkpoint_offsets[checkpoints.RECOVERY_POINTS].get(key, 0)
        rules = Rules(deep, gaps, is_clean_shutdown)
        end = verify_partition(partition.path, findings, rules, log_start_offset=start, recovery_point=recovery_point)
        for name, offsets in checkpoint_offsets.items():
            if offsets.get(key, 0) > end:
                _report_past_end(findings, name, offsets[key], end, is_clean_shutdown=is_clean_shutdown)
        _compare_topic_ids(partition, topic_ids, findings)
    findings.partition = ""
    emit(
        {
            KIND: "verified",
            "directory": str(logs.root if logs.whole else logs.partitions[0].path),
            "partitions": len(logs.partitions),
            **findings.counts,
            "faults": findings.faults,
            "notes": findings.notes,
        }
    )
    return findings


def verify_partition(
    directory: Path, findings: Findings, rules: Rules, *, log_start_offset: int = 0, recovery_point: int = 0
) -> int:
    """Verifies all files of a partition's directory and returns the log end offset."""
    bases, others = list_segment_files(directory)
    logs = bases.pop(LOG_SUFFIX, [])
    epochs = EpochCheck(directory, findings, max(log_start_offset, logs[0] if logs else 0))
    producers = ProducerCheck(directory, bases.pop(SNAPSHOT_SUFFIX, []), findings, gaps=rules.gaps)
    end: int | None = None
    for number, base in enumerate(logs):
        closed = number + 1 < len(logs)
        check = SegmentCheck(directory, base, findings, rules._replace(whole=rules.whole or closed))
        end = check.run(end, epochs, producers, logs[number + 1] if closed else LONG_MAX, recovery_point)
    end = log_start_offset if end is None else end
    epochs.end(end)
    producers.end(end)
    for suffix, base_offsets in bases.items():
        for base in base_offsets:
            if suffix not in INDEX_SUFFIXES:
                findings.report_fault(f"{base:020d}{suffix}", "is not a file of a log")
            elif base not in logs:
                findings.report_fault(f"{base:020d}{suffix}", "belongs to no segment; the next start removes it")
    for name in others:
        if name.endswith(TRANSIENT_SUFFIXES):
            findings.report_note(name, "was left by a deletion, a cleaning or a crash; the next start removes it")
        elif name not in KNOWN_FILES:
            findings.report_fault(name, "is not a file of a log")
    return end


def _read_checkpoint(root: Path, name: str, findings: Findings) -> Offsets:
    if name == CLEANER_OFFSETS and (root / name).exists() and not (root / name).stat().st_size:
        return {}  # Apache Kafka leaves the file empty until the first cleaning
    try:
        return {(topic, int(index)): int(offset) for topic, index, offset in checkpoint_rows(root / name, 3)}
    except checkpoints.UnreadableCheckpoint as error:
        findings.report_fault(name, str(error).removeprefix(f"{root}/"))
        return {}


def _report_past_end(findings: Findings, name: str, offset: int, end: int, *, is_clean_shutdown: bool) -> None:
    problem = f"says {offset}, the log ends at {end}"
    if is_clean_shutdown:
        findings.report_fault(name, problem, offset=offset)
    else:
        findings.report_note(name, f"{problem}, as after a crash; the next start corrects it", offset=offset)


def _compare_topic_ids(partition: PartitionDirectory, known: dict[str, str], findings: Findings) -> None:
    topic_id = check_topic_id(partition.path, findings)
    if topic_id is not None and known.setdefault(partition.topic, topic_id) != topic_id:
        findings.report_fault(
            PARTITION_METADATA_FILE, f"topic id {topic_id} is not {known[partition.topic]} of its siblings"
        )
