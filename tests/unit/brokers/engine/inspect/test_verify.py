"""Tests of `log verify`: it reports no fault in files as a broker wrote them, and every flipped bit."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from brokers.engine.inspect.findings import Findings
from brokers.engine.inspect.verify import verify_partition
from brokers.engine.inspect.verify_segments import Rules
from brokers.engine.inspect.verify_state import check_topic_id
from brokers.engine.records.batch import scan_headers
from brokers.engine.records.message_set import encode_message
from brokers.engine.storage.leader_epochs import FILE_NAME as EPOCHS
from tests.simulation.log import SimulatedLog
from tests.unit.brokers.engine.inspect.sample import build, content, findings, lead, run, table


@pytest.mark.parametrize("arguments", [(), ("--quick",)])
def test_a_directory_written_by_a_broker_passes(tmp_path: Path, arguments: tuple[str, ...]) -> None:
    directory = build(tmp_path / "data")
    before = content(tmp_path)
    for place in (directory, directory.parent):
        code, rows = run("verify", place, *arguments)
        assert (code, findings(rows), findings(rows, "note")) == (0, [], [])
        assert rows[-1]["batches"] == 14
    assert content(tmp_path) == before, "verifying writes nothing"


def test_a_directory_after_a_crash_passes_up_to_notes(tmp_path: Path) -> None:
    directory = build(tmp_path / "data", clean=False)
    code, rows = run("verify", directory)
    assert code == 0, rows
    assert {row["file"][20:] for row in findings(rows, "note")} <= {".index", ".timeindex"}


COVERED_FROM = 21  # a batch's checksum covers everything from here on


def flips(name: str, content: bytes) -> Iterator[tuple[int, int]]:
    """Yield (byte, bit) to flip: all eight bits of a byte, or one bit where a checksum covers it."""
    covered: set[int] = set()
    if name.endswith(".log"):
        for position, header in scan_headers(content):
            covered.update(range(position + COVERED_FROM, position + header.size_bytes))
    for at in range(len(content)):
        yield from ((at, bit) for bit in ([at % 8] if at in covered else range(8)))


def is_unprovable(name: str, at: int) -> bool:
    """Return whether the byte is part of the topic id, which no other file of the partition holds; only other
    partitions and ZooKeeper do (decision 50).
    """
    return name == "partition.metadata" and at >= len("version: 0\ntopic_id: ")


def test_every_flipped_bit_of_every_file_is_reported(tmp_path: Path) -> None:
    """The test covers every byte of a partition with several segments."""
    directory = build(tmp_path / "data", batches=6)
    missed = []
    flipped = 0
    files = content(directory)
    assert sum(name.endswith(".log") for name in files) > 1
    for name, whole in files.items():
        file = directory / name
        for at, bit in flips(name, whole):
            damaged = bytearray(whole)
            damaged[at] ^= 1 << bit
            file.write_bytes(damaged)
            flipped += 1
            rows: list[dict[str, Any]] = []
            findings_of = Findings(rows.append, "orders-0")
            verify_partition(directory, findings_of, Rules(deep=False, gaps=False, whole=True))
            check_topic_id(directory, findings_of)
            if not rows and not is_unprovable(name, at):
                missed.append((name, at, bit))
        file.write_bytes(whole)
    assert flipped > 1_500
    assert not missed


def _replace(directory: Path, name: str, old: bytes, new: bytes) -> None:
    file = directory / name
    assert old in file.read_bytes()
    file.write_bytes(file.read_bytes().replace(old, new))


def _damage(kind: str, directory: Path) -> None:
    first = directory / "00000000000000000000.log"
    later = sorted(directory.glob("*.log"))[1]
    if kind == "torn":
        first.write_bytes(first.read_bytes()[:-1])
    elif kind == "missing segment":
        for file in directory.glob(f"{later.stem}.*"):
            file.unlink()
    elif kind == "missing index":
        first.with_suffix(".index").unlink()
    elif kind == "short time index":
        first.with_suffix(".timeindex").write_bytes(first.with_suffix(".timeindex").read_bytes()[:-12])
    elif kind == "odd index":
        first.with_suffix(".index").write_bytes(first.with_suffix(".index").read_bytes() + b"x")
    elif kind == "orphan":
        (directory / "00000000000000009999.index").write_bytes(b"")
    elif kind == "foreign":
        (directory / "notes.txt").write_text("hello")
    elif kind == "epochs gone":
        (directory / EPOCHS).unlink()
    elif kind == "epoch past the end":
        _replace(directory, EPOCHS, b"0\n2\n", b"0\n3\n")
        with (directory / EPOCHS).open("ab") as file:
            file.write(b"11 5000\n")
    elif kind == "snapshot past the end":
        newest = sorted(directory.glob("*.snapshot"))[-1]
        shutil.copy(newest, directory / "00000000000000009999.snapshot")


KINDS = {
    "torn": "cut off",
    "missing segment": "missing before it",
    "missing index": "is missing",
    "short time index": "greatest timestamp",
    "odd index": "not a whole entry",
    "orphan": "no segment",
    "foreign": "not a file of a log",
    "epochs gone": "is missing",
    "epoch past the end": "past the log's end",
    "snapshot past the end": "past the log's end",
}


@pytest.mark.parametrize("kind", KINDS)
def test_other_damage_is_named(tmp_path: Path, kind: str) -> None:
    directory = build(tmp_path / "data")
    _damage(kind, directory)
    code, rows = run("verify", directory)
    assert code == 1
    assert any(KINDS[kind] in row["what"] for row in findings(rows)), rows


def test_gaps_are_right_in_a_compacted_log(tmp_path: Path) -> None:
    directory = build(tmp_path / "data")
    _damage("missing segment", directory)
    assert run("verify", directory, "--compacted")[0] == 0
    (directory.parent / "cleaner-offset-checkpoint").write_text("0\n1\norders 0 5\n")
    assert run("verify", directory)[0] == 0


def test_checkpoints_of_the_directory_are_compared_with_the_logs(tmp_path: Path) -> None:
    directory = build(tmp_path / "data")
    checkpoint = directory.parent / "replication-offset-checkpoint"
    checkpoint.write_text("0\n1\norders 0 5000\n")
    code, rows = run("verify", directory.parent)
    assert code == 1
    assert findings(rows)[0]["file"] == checkpoint.name
    checkpoint.write_text("0\n1\norders 0 +5\n")
    code, rows = run("verify", directory.parent)
    assert (code, findings(rows)[0]["file"]) == (1, checkpoint.name)


def test_siblings_with_another_topic_id_are_found(tmp_path: Path) -> None:
    held = table(tmp_path / "data")
    for index in (0, 1):
        lead(held, 0, index)
    held.close()
    file = tmp_path / "data" / "orders-1" / "partition.metadata"
    text = bytearray(file.read_bytes())
    text[25] ^= 1
    file.write_bytes(text)
    code, rows = run("verify", tmp_path / "data")
    finding: dict[str, Any] = findings(rows)[0]
    assert (code, finding["file"], finding["partition"]) == (1, "partition.metadata", "orders-1")


def test_a_directory_that_a_broker_holds_is_left_alone(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    build(tmp_path / "data")
    held = table(tmp_path / "data")
    for act in (("verify",), ("recover",), ("recover", "--yes")):
        assert run(act[0], tmp_path / "data" / "orders-0", *act[1:]) == (2, [])
        assert "running broker" in capsys.readouterr().err
    assert run("dump", tmp_path / "data")[0] == 0
    held.close()


def test_a_log_that_starts_within_a_batch_and_has_no_index_entries_is_right(tmp_path: Path) -> None:
    """DeleteRecords and a clean stop of a broker that wrote little leave such a log (LOG-9, LOG-46)."""
    written = SimulatedLog(tmp_path)
    written.append(3)
    written.delete_records(2)
    written.table.close()
    assert (tmp_path / "t-0" / "00000000000000000000.index").read_bytes() == b""
    code, rows = run("verify", tmp_path)
    assert (code, findings(rows), findings(rows, "note")) == (0, [], [])


def test_a_log_that_was_cut_back_to_where_its_last_segment_begins_is_right(tmp_path: Path) -> None:
    """REP-15: a leader change just after a roll has this effect."""
    log = SimulatedLog(tmp_path)
    for count in (3, 2, 2):
        log.roll()
        for _ in range(count):
            log.append(size=200)
    log.roll()
    log.truncate(log.partition.log.segments[-2].base_offset)
    assert not log.partition.log.active.size_bytes
    log.restart()
    log.table.close()
    code, rows = run("verify", tmp_path)
    assert (code, findings(rows)) == (0, [])


@pytest.mark.parametrize("act", ["dump", "verify", "recover"])
def test_a_directory_that_is_only_called_like_a_partition_is_left_alone(
    tmp_path: Path, act: str, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "polkit-1" / "rules.d").mkdir(parents=True)
    for place in (tmp_path, tmp_path / "polkit-1"):
        assert run(act, place, *(["--yes"] if act == "recover" else [])) == (2, [])
        assert "neither a partition's directory" in capsys.readouterr().err
    assert [path.name for path in (tmp_path / "polkit-1").iterdir()] == ["rules.d"]


def test_a_segment_of_an_old_format_is_no_fault_unless_it_is_damaged(tmp_path: Path) -> None:
    file = tmp_path / "orders-0" / f"{0:020d}.log"
    file.parent.mkdir()
    content = encode_message(0, 0, -1, b"k", b"a") + encode_message(1, 1, 1_700_000_000_000, b"k", b"b")
    file.write_bytes(content)
    code, rows = run("verify", tmp_path)
    assert (code, findings(rows)) == (0, [])
    assert any("old format" in row["what"] for row in findings(rows, "note"))
    file.write_bytes(content[:-1] + b"c")
    code, rows = run("verify", tmp_path)
    assert (code, len(findings(rows))) == (1, 1)
