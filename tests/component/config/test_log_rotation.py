"""Rotation of log files of programs that do not rotate them."""

from __future__ import annotations

import io
import subprocess
import sys
from pathlib import Path

import pytest

from brokers.agent.process import BrokerProcess
from brokers.infra import log_rotation
from brokers.infra.log_rotation import rotate
from config.embedded.process import Child
from config.supervisor.progress import StartProgress
from config.supervisor.watch import Stage, Watch
from tests.testkit.waiting import eventually

LIMIT_BYTES = 100_000
# Writes numbered lines without end, as fast as it is read, and goes on at its end.
WRITER = """
import sys
number = 0
while True:
    number += 1
    sys.stderr.write(f"{number:08} " + "x" * 90 + "\\n")
    if number % 100 == 0:
        sys.stderr.flush()
"""


@pytest.fixture(autouse=True)
def small_files(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(log_rotation, "LOG_FILE_BYTES_MAX", LIMIT_BYTES)


def test_a_file_is_emptied_in_its_place_and_the_older_ones_move_on(tmp_path: Path) -> None:
    file = tmp_path / "web.log"
    for number in range(5):
        file.write_text(f"{number}" * 20)
        assert rotate(file, bytes_max=10, kept=3)
    assert file.read_text() == ""
    assert [path.name for path in sorted(tmp_path.iterdir())] == ["web.log", "web.log.1", "web.log.2", "web.log.3"]
    assert [(tmp_path / f"web.log.{number}").read_text()[0] for number in (1, 2, 3)] == ["4", "3", "2"]


def test_a_small_file_and_one_that_is_not_there_are_left_alone(tmp_path: Path) -> None:
    file = tmp_path / "web.log"
    assert not rotate(file)
    file.write_text("a line")
    assert not rotate(file)
    assert file.read_text() == "a line"


def test_a_file_that_cannot_be_copied_is_emptied_all_the_same(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = tmp_path / "web.log"
    file.write_text("x" * 100)

    def full(*_: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(log_rotation, "_copy", full)
    assert rotate(file, bytes_max=10)
    assert [(path.name, path.read_text()) for path in tmp_path.iterdir()] == [("web.log", "")]


def test_the_supervisor_keeps_the_log_of_a_running_child_small(tmp_path: Path) -> None:
    child = Child(name="child", command=(sys.executable, "-c", WRITER), log_file=tmp_path / "child.log")
    watch = Watch(progress=StartProgress(io.StringIO()), on_change=lambda _pids: None)
    child.start()
    watch.add(child, Stage.PROGRAM)
    try:
        third = tmp_path / "child.log.3"
        eventually(lambda: watch.tick() or third.exists(), within_s=30, what="three older files")
        assert child.is_running
        first_line = (tmp_path / "child.log.1").read_text().splitlines()[1]
        assert int(first_line[:8]) > 1, "the program goes on at the beginning of the emptied file"
        assert b"\0" not in (tmp_path / "child.log.1").read_bytes()
    finally:
        watch.stop()
    assert len(list(tmp_path.glob("child.log*"))) <= 5


def test_the_agent_keeps_the_log_of_a_running_broker_small(tmp_path: Path) -> None:
    process = BrokerProcess(directory=tmp_path / "1", command=(sys.executable, "-c", WRITER))
    process.start()
    try:
        third = process.log_file.with_name("broker.log.3")
        eventually(lambda: process.rotate_log() or third.exists(), within_s=30, what="three older files")
        assert process.is_running
    finally:
        process.kill()
        process.wait(10)


def test_a_line_written_while_a_file_is_rotated_is_in_one_of_them_or_lost_but_none_is_torn_twice(
    tmp_path: Path,
) -> None:
    file = tmp_path / "web.log"
    with log_rotation.open_log(file) as log:
        writer = subprocess.Popen([sys.executable, "-c", WRITER], stderr=log)
    try:
        eventually(lambda: rotate(file, kept=100) and file.with_name("web.log.4").exists(), within_s=30, what="four")
    finally:
        writer.kill()
        writer.wait()
    numbers: list[int] = []
    for number in (4, 3, 2, 1):
        lines = file.with_name(f"web.log.{number}").read_text().splitlines()
        numbers += [int(line[:8]) for line in lines[1:-1]]
    assert numbers == sorted(set(numbers)), "no line is there twice, and none before an earlier one"
