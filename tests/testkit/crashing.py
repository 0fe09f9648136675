"""A broker that kills itself right after a given record of a transaction.

python -m tests.testkit.crashing ORDERS --settings FILE

`Orders` writes the file of crash points. A broker removes an order before it carries it out: one crash for each.
"""

from __future__ import annotations

import json
import os
import signal
import sys
from pathlib import Path
from typing import Any, Final, NamedTuple

# The record is in this leader's log, and maybe nowhere else; or it is committed, and nothing that it causes has left.
APPENDED: Final = "appended"
COMMITTED: Final = "committed"


class Crash(NamedTuple):
    """A crash at the record that brings an internal id into `state` with a number of partitions."""

    transactional_id: str
    state: str
    partitions: int
    moment: str


class Orders:
    """File with the crash points of a cluster's brokers; `module` is the module that they run."""

    def __init__(self, file: Path) -> None:
        self._file = file
        self.module = ("tests.testkit.crashing", str(file))

    def give(self, crash: Crash) -> None:
        # In one step: a broker may be looking.
        written = self._file.with_suffix(".next")
        written.write_text(json.dumps(crash))
        written.replace(self._file)

    @property
    def are_done(self) -> bool:
        return not self._file.exists()


def _strike(file: Path, moment: str, records: Any) -> None:
    from brokers.engine.coordinators.transactions.formats import UndecodableRecord, decode_key, decode_value
    from brokers.engine.coordinators.transactions.states import NAMES

    try:
        wanted = Crash(*json.loads(file.read_text()))
    except FileNotFoundError:
        return
    for record in records:
        try:
            value = decode_value(decode_key(record.key), record.value or b"")
        except UndecodableRecord:
            continue
        if Crash(value.transactional_id, NAMES[value.state], len(value.partitions), moment) == wanted:
            file.unlink()
            os.kill(os.getpid(), signal.SIGKILL)


def _plant(file: Path) -> None:
    from brokers.engine.coordinators.shard import Shard

    append, release = Shard._append, Shard.release

    def appending(shard: Any, outcome: Any, **more: Any) -> int:
        code = append(shard, outcome, **more)
        if not code:
            _strike(file, APPENDED, outcome.records)
        return code

    def releasing(shard: Any, outcome: Any) -> None:
        _strike(file, COMMITTED, outcome.records)
        release(shard, outcome)

    Shard._append = appending  # type: ignore[method-assign]
    Shard.release = releasing  # type: ignore[method-assign]


def main() -> int:
    # Compiled modules cannot be patched.
    os.environ["PENSTOCK_NATIVE"] = "0"
    _plant(Path(sys.argv.pop(1)))
    from brokers.engine.__main__ import main as run

    return run()


if __name__ == "__main__":
    sys.exit(main())
