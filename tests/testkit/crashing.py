"""A broker that kills itself right after a given record of a transaction.

python -m tests.testkit.crashing ORDERS --settings FILE

`CrashOrders` writes the file with the next crash. A broker removes the file before it kills itself, so that an order
causes one crash.
"""

from __future__ import annotations

import json
import os
import signal
import sys
from pathlib import Path
from typing import Any, Final, NamedTuple

# Moments of a crash: the record is in this leader's log, perhaps in no other; or it is committed, and the coordinator
# has not acted on it.
APPENDED: Final = "appended"
COMMITTED: Final = "committed"


class Crash(NamedTuple):
    """A crash at the record that brings an internal id into `state` with a number of partitions."""

    transactional_id: str
    state: str
    partitions: int
    moment: str


class CrashOrders:
    """File with the crash points of a cluster's brokers; `module` is the module that they run."""

    def __init__(self, file: Path) -> None:
        self._file = file
        self.module = ("tests.testkit.crashing", str(file))

    def place(self, crash: Crash) -> None:
        # Renamed into place, because a broker may read the file at any time.
        new_file = self._file.with_suffix(".next")
        new_file.write_text(json.dumps(crash))
        new_file.replace(self._file)

    @property
    def are_executed(self) -> bool:
        return not self._file.exists()


def _kill_at_record(file: Path, moment: str, records: Any) -> None:
    from brokers.engine.coordinators.transactions.formats import UndecodableRecord, decode_key, decode_value
    from brokers.engine.coordinators.transactions.states import NAMES

    try:
        ordered_crash = Crash(*json.loads(file.read_text()))
    except FileNotFoundError:
        return
    for record in records:
        try:
            value = decode_value(decode_key(record.key), record.value or b"")
        except UndecodableRecord:
            continue
        if Crash(value.transactional_id, NAMES[value.state], len(value.partitions), moment) == ordered_crash:
            file.unlink()
            os.kill(os.getpid(), signal.SIGKILL)


def _patch_shard(file: Path) -> None:
    from brokers.engine.coordinators.shard import Shard

    append, release = Shard._append, Shard.release_replies_and_effects

    def append_and_kill(shard: Any, outcome: Any, **options: Any) -> int:
        code = append(shard, outcome, **options)
        if not code:
            _kill_at_record(file, APPENDED, outcome.records)
        return code

    def release_and_kill(shard: Any, outcome: Any) -> None:
        _kill_at_record(file, COMMITTED, outcome.records)
        release(shard, outcome)

    Shard._append = append_and_kill  # type: ignore[method-assign]
    Shard.release_replies_and_effects = release_and_kill  # type: ignore[method-assign]


def main() -> int:
    # Compiled modules cannot be patched.
    os.environ["PENSTOCK_NATIVE"] = "0"
    _patch_shard(Path(sys.argv.pop(1)))
    from brokers.engine.__main__ import main as run

    return run()


if __name__ == "__main__":
    sys.exit(main())
