"""Tests of `log recover`: it predicts exactly what recovery does, changes files only with `--yes`, and repairs every
fault.
"""

from __future__ import annotations

import shutil
import tempfile
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from brokers.engine.storage.directories import PARTITION_METADATA_FILE
from tests.unit.brokers.engine.inspect.sample import build, content, findings, lead, run, table


@pytest.fixture(scope="module")
def crashed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("crashed") / "data"
    build(root, clean=False)
    return root


def test_a_torn_end_is_reported_and_cut(crashed: Path, tmp_path: Path) -> None:
    root = tmp_path / "data"
    shutil.copytree(crashed, root)
    last = sorted((root / "orders-0").glob("*.log"))[-1]
    with last.open("ab") as file:
        file.write(b"\0" * 30)
    assert run("verify", root)[0] == 1
    before = content(tmp_path)
    code, rows = run("recover", root)
    assert code == 1
    assert [(row["file"], row["position"]) for row in findings(rows, "truncate")] == [
        (last.name, last.stat().st_size - 30)
    ]
    assert rows[-1]["truncated_bytes"] == 30
    assert content(tmp_path) == before, "without --yes nothing is written"
    code, rows = run("recover", root, "--yes")
    assert (code, rows[-1]["truncated_bytes"]) == (0, 30)
    assert run("verify", root)[0] == 0
    assert run("recover", root)[0] == 0, "nothing is left to do"


@settings(max_examples=30)
@given(st.data())
def test_the_announced_recovery_is_the_one_that_happens(crashed: Path, data: st.DataObject) -> None:
    """The damage is any file of the partition truncated, flipped or removed."""
    with tempfile.TemporaryDirectory() as scratch:
        root = Path(scratch) / "data"
        shutil.copytree(crashed, root)
        directory = root / "orders-0"
        # A flipped topic id makes the log another topic's to the broker (decision 50), whatever recovery does.
        names = sorted(path.name for path in directory.iterdir() if path.name != PARTITION_METADATA_FILE)
        for _ in range(data.draw(st.integers(1, 2))):
            victim = directory / data.draw(st.sampled_from(names))
            whole = bytearray(victim.read_bytes()) if victim.exists() else bytearray()
            kind = data.draw(st.sampled_from(["cut", "flip", "remove"]))
            if kind == "remove":
                victim.unlink(missing_ok=True)
            elif whole:
                at = data.draw(st.integers(0, len(whole) - 1))
                if kind == "flip":
                    whole[at] ^= 1 << data.draw(st.integers(0, 7))
                victim.write_bytes(whole[:at] if kind == "cut" else whole)
        whole_log = data.draw(st.booleans())
        arguments = ("--whole",) if whole_log else ()
        _, predicted = run("recover", root, *arguments)
        code, done = run("recover", root, *arguments, "--yes")
        assert code == 0
        assert {**predicted[-1], "row": ""} == {**done[-1], "row": ""}
        if whole_log:
            faults = findings(run("verify", root, "--compacted")[1])
            # No checksum covers a batch's leader epoch: recovery has to accept it (decision 50).
            left = [row for row in faults if not row["what"].startswith("leader epoch")]
            assert not [row for row in left if row["file"].endswith((".log", "index"))], left
        held = table(root)
        partition = lead(held, 20)
        assert partition.log_end_offset == done[-1]["log_end_offset"]
        held.close()


def test_damage_below_the_recovery_point_is_seen_with_whole(tmp_path: Path) -> None:
    directory = build(tmp_path / "data")
    first = directory / "00000000000000000000.log"
    whole = bytearray(first.read_bytes())
    whole[80] ^= 1
    first.write_bytes(whole)
    assert run("recover", directory)[0] == 0
    code, rows = run("recover", directory, "--whole")
    assert code == 1
    assert findings(rows, "truncate")[0]["position"] == 0
    assert len(findings(rows, "remove")) == len(list(directory.glob("*.log"))) - 1
