"""A disk that fails each operation of a run in turn: the root goes offline and acknowledged records stay (LOG-3)."""

from __future__ import annotations

import errno
import os
from pathlib import Path

import pytest

from brokers.engine.records import error_codes
from brokers.engine.records.builder import Record, build_batch
from brokers.engine.storage.files import StorageFailed
from tests.simulation.checks import read_all
from tests.simulation.disk import Disk
from tests.simulation.log import NOW_MS, SimulatedLog
from tests.simulation.matrix import quick_directory
from tests.simulation.tree import Op

BATCHES = 5
FULL, BROKEN = errno.ENOSPC, errno.EIO


def produced(log: SimulatedLog, acked: list[Record]) -> None:
    """Appends one batch; a batch that was answered with an error must never be served."""
    records = [Record(NOW_MS, b"k", b"%d." % len(acked) + b"x" * 60), Record(NOW_MS, b"k", b"y")]
    answer = log.partition.append(memoryview(build_batch(records)), NOW_MS, acks=1, produce_version=9)
    if answer.error_code == error_codes.NONE:
        assert answer.base_offset == len(acked)
        acked += records
    else:
        assert answer.error_code == error_codes.KAFKA_STORAGE_ERROR


def run(log: SimulatedLog, acked: list[Record]) -> None:
    """Runs appends, rolls, flushes, checkpoints, retention and a clean stop."""
    for _ in range(2):
        for _ in range(BATCHES):
            produced(log, acked)
        if not log.partition.offline:
            try:
                log.partition.log.roll(NOW_MS)
            except StorageFailed as failure:  # handled like in `Partition.append`
                log.table.on_directory_failure(failure)
        batch = log.table.flusher.plan_flush()
        batch.run()
        batch.finish()
    produced(log, acked)
    log.table.close()


@pytest.mark.parametrize("refused", [FULL, BROKEN])
@pytest.mark.parametrize("lasting", [False, True])
def test_an_error_at_any_operation_is_reported_and_loses_no_acknowledged_record(refused: int, lasting: bool) -> None:
    step = sent = 0
    while True:
        with quick_directory() as home:
            top = home / "run"
            top.mkdir()
            disk = Disk(top)
            acked: list[Record] = []
            with disk.recording():
                log = SimulatedLog(top, disk=disk)
                attempts = 0

                def refuse(op: Op, fails_at: int = step) -> None:
                    nonlocal attempts
                    attempts += 1
                    if attempts - 1 == fails_at or (lasting and attempts > fails_at):
                        raise OSError(refused, os.strerror(refused))

                disk.before_operation = refuse
                run(log, acked)
                disk.before_operation = None
                disk.end_process()
                if attempts <= step:
                    break
                sent += 1
                assert top in log.table.offline_directories, f"{refused} at operation {step} was not reported"
                assert os.strerror(refused) in log.table.offline_directories[top]
                refusal = log.partition.append(
                    memoryview(build_batch([Record(0, None, b"")])), 0, acks=1, produce_version=9
                )
                assert refusal.error_code == error_codes.KAFKA_STORAGE_ERROR
                again = SimulatedLog(top, disk=disk, epoch=1)
                result = [record for _, record in read_all(again.partition.log)[0]]
                assert result[: len(acked)] == acked
                assert len(result) <= len(acked), "a refused record is served"
                produced(again, result)
                disk.end_process()
        step += 1
    assert sent > 50


def test_a_full_disk_that_took_half_a_batch_leaves_the_log_as_it_was(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    top = tmp_path / "run"
    top.mkdir()
    log = SimulatedLog(top)
    acked: list[Record] = []
    produced(log, acked)
    size, write = log.partition.log.size_bytes, os.write
    monkeypatch.setattr(os, "write", lambda fd, data: write(fd, bytes(data)[:20]) if len(data) > 20 else _full())
    produced(log, acked)
    monkeypatch.undo()
    assert len(acked) == 2
    assert log.partition.offline
    assert (Path(log.partition.log.directory) / f"{0:020d}.log").stat().st_size == size
    log.disk.end_process()


def _full() -> int:
    raise OSError(FULL, os.strerror(FULL))
