"""A run of the log simulation: operations of a broker, restarts, kills and power cuts at any operation, by a seed."""

from __future__ import annotations

import random
import shutil
from pathlib import Path
from typing import Final

from tests.simulation.checks import check_files, check_promises
from tests.simulation.crashes import after_kill, after_power_loss
from tests.simulation.disk import Disk
from tests.simulation.log import CODECS, SimulatedLog
from tests.simulation.promises import Promises
from tests.simulation.tree import materialise

# Weights of the steps in the random choice.
WEIGHTS: Final = {
    "append": 60, "roll": 6, "flush": 8, "elect": 3, "retain": 3, "delete_records": 3, "truncate": 3, "restart": 3,
    "kill": 4, "lose_power": 4,
}  # fmt: skip
# A crash is at one of this many last operations of the disk.
CRASHED_WITHIN_OPS: Final = 60
DRAWS: Final = 2


class LogRun:
    """A run of a log. `history` describes every step; `step` raises AssertionError for a broken promise."""

    def __init__(self, seed: int, home: Path) -> None:
        self.dice = random.Random(seed)
        self.history: list[str] = []
        self._home = home
        self._generation = 0
        self._top = home / "0"
        self._top.mkdir()
        self._disk = Disk(self._top)
        with self._disk.recording():
            self.log = SimulatedLog(self._top, disk=self._disk)

    def step(self) -> None:
        name = self.dice.choices(list(WEIGHTS), list(WEIGHTS.values()))[0]
        if name in ("kill", "lose_power"):
            self._crash(power_lost=name == "lose_power")
            return
        arguments = self._arguments(name)
        self.history.append(f"{name} {' '.join(map(str, arguments))}".strip())
        with self._disk.recording():
            getattr(self.log, name)(*arguments)
        partition = self.log.partition
        assert partition.log_end_offset == self.log.model.end
        partition.check()

    def _arguments(self, name: str) -> tuple[int, ...]:
        dice, end = self.dice, self.log.model.end
        if name == "append":
            count, size, shift_ms = dice.randint(1, 5), dice.randint(0, 120), dice.randint(-50, 50)
            return count, size, shift_ms, dice.randint(-1, 2), dice.choice(CODECS)
        if name == "retain":
            return (dice.randint(0, 8_000),)
        if name == "delete_records":
            return (dice.randint(0, end + 2),)
        return (max(end - dice.randint(0, 30), 0),) if name == "truncate" else ()

    def check(self) -> None:
        """Checks the whole log."""
        with self._disk.recording():
            check_promises(self.log.partition, self.log.model, self.log.step, power_lost=False)

    def finish(self) -> None:
        """Does nothing: `check` checks everything."""

    def close(self) -> None:
        """Closes all descriptors."""
        self._disk.end_process()

    def _crash(self, *, power_lost: bool) -> None:
        ops = self._disk.ops
        step = max(len(ops) - self.dice.randint(0, CRASHED_WITHIN_OPS), 0) if self.dice.random() < 0.7 else len(ops)
        self._disk.end_process()
        kinds = after_power_loss(self._disk.start, ops, step, self.dice, DRAWS) if power_lost else None
        remains = list(kinds or ()) or list(after_kill(self._disk.start, ops, step))
        choice = self.dice.randrange(len(remains))
        place = f"operation {step} of {len(ops)}" + (f" ({ops[step]})" if step < len(ops) else "")
        crash = "lose power" if power_lost else "kill"
        self.history.append(f"{crash} before {place}, remains {choice + 1} of {len(remains)}")
        before = self.log
        shutil.rmtree(self._top)
        self._generation += 1
        self._top = self._home / str(self._generation)
        materialise(remains[choice], self._top)
        self._disk = Disk(self._top)
        with self._disk.recording():
            reopened = SimulatedLog(
                self._top, disk=self._disk, epoch=before.epoch + 1, record_count=before.record_count
            )
            log = reopened.partition.log
            result = check_promises(reopened.partition, before.model, step, power_lost=power_lost)
            check_files(Path(log.directory), log)
        if len(result) < log.log_end_offset - log.log_start_offset:
            # The log was never flushed, so nothing is promised about it; the run begins another one.
            self.history.append("what is left has holes; begin again")
            self._start_empty()
            return
        reopened.model = Promises.resumed(result, log.log_start_offset, log.log_end_offset)
        reopened.learn_sequences()
        self.log = reopened

    def _start_empty(self) -> None:
        self._disk.end_process()
        shutil.rmtree(self._top)
        self._top.mkdir()
        self._disk = Disk(self._top)
        with self._disk.recording():
            self.log = SimulatedLog(self._top, disk=self._disk, record_count=self.log.record_count)
