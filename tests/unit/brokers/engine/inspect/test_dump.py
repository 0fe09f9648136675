"""Tests of `log dump`: it prints the contents of a log as text and as JSON lines."""

from __future__ import annotations

import io
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from brokers.engine.inspect import dump
from brokers.engine.inspect.__main__ import main
from brokers.engine.inspect.findings import escaped
from brokers.native.modules import ROOT
from tests.unit.brokers.engine.inspect.sample import BATCHES, append, build, lead, run, table


def test_everything_in_a_partition_is_shown(tmp_path: Path) -> None:
    directory = build(tmp_path / "data")
    code, rows = run("dump", directory, "--records", "--indexes")
    assert code == 0
    kinds = {row["row"] for row in rows}
    assert kinds == {
        "partition", "leader_epoch", "snapshot", "producer", "segment", "index", "timeindex", "batch", "record",
    }  # fmt: skip
    batches = [row for row in rows if row["row"] == "batch"]
    assert len(batches) == BATCHES
    assert all(row["crc_ok"] for row in batches)
    assert {row["codec"] for row in batches} == {"uncompressed", "gzip", "snappy", "lz4", "zstd"}
    records = [row for row in rows if row["row"] == "record"]
    assert [row["offset"] for row in records] == list(range(sum(1 + number % 3 for number in range(BATCHES))))
    assert records[0]["key"] == "k0"
    assert records[0]["headers"] == [["trace", "\\x00\\xff"]]
    assert [row["epoch"] for row in rows if row["row"] == "leader_epoch"] == [3, 10]


def test_a_whole_directory_shows_its_checkpoints_first(tmp_path: Path) -> None:
    build(tmp_path / "data")
    code, rows = run("dump", tmp_path / "data")
    assert code == 0
    assert rows[0]["row"] == "directory"
    assert rows[0]["stopped_cleanly"] is True
    assert {row["file"] for row in rows if row["row"] == "checkpoint"} >= {"recovery-point-offset-checkpoint"}
    assert not [row for row in rows if row["row"] == "record"]


def test_an_offset_and_a_limit_narrow_it_down(tmp_path: Path) -> None:
    directory = build(tmp_path / "data")
    _, rows = run("dump", directory, "--from-offset", 10, "--limit", 2)
    batches = [row for row in rows if row["row"] == "batch"]
    assert len(batches) == 2
    assert batches[0]["base_offset"] <= 10 <= batches[0]["last_offset"]


def test_text_is_one_line_a_row_and_cannot_command_a_terminal(tmp_path: Path) -> None:
    directory = build(tmp_path / "data")
    out = io.StringIO()
    assert main(["dump", str(directory), "--records"], out) == 0
    lines = out.getvalue().splitlines()
    assert any(line.startswith("batch: base_offset=0 last_offset=0 position=0 ") for line in lines)
    assert all(line.isprintable() for line in lines)
    assert escaped(b"\x1b[31m\\\n\xff\xc2\x9b") == "\\x1b[31m\\\\\\n\\xff\\x9b"


@pytest.mark.parametrize("place", ["nothing", "empty"])
def test_a_directory_without_a_log_is_refused(tmp_path: Path, place: str, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "empty").mkdir()
    assert run("dump", tmp_path / place) == (2, [])
    assert place in capsys.readouterr().err


def test_the_management_command_hands_over_and_ends_with_the_same_code(tmp_path: Path) -> None:
    directory = build(tmp_path / "data")
    (directory / "stray").write_text("x")
    for arguments, code in (("dump", "--json"), 0), (("verify",), 1):
        done = subprocess.run(
            [sys.executable, str(ROOT / "manage.py"), "log", arguments[0], directory.name, *arguments[1:]],
            cwd=directory.parent,
            env={**os.environ, "PENSTOCK_STATE_DIR": str(tmp_path / "state")},
            capture_output=True,
            check=False,
            text=True,
        )
        assert done.returncode == code, done
        assert directory.name in done.stdout


def test_partitions_that_hold_nothing_yet_and_files_that_go_meanwhile_end_no_dump(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    held = table(tmp_path)
    for index in (0, 1):
        lead(held, 0, index)
    append(lead(held, 0, 1), 0)
    code, rows = run("dump", tmp_path)
    assert (code, [row["segments"] for row in rows if row["row"] == "partition"]) == (0, [0, 1])
    log_file = tmp_path / "orders-1" / f"{0:020d}.log"
    listed = dump.list_segment_files

    def deleting(directory: Path) -> Any:
        result = listed(directory)
        if directory == log_file.parent:
            log_file.unlink()
        return result

    monkeypatch.setattr(dump, "list_segment_files", deleting)
    code, rows = run("dump", tmp_path)
    assert (code, rows[-1]) == (0, {"row": "gone", "partition": "orders-1", "file": log_file.name})
    held.close()
