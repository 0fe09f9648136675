"""A broker that records the longest turns of its event loop: `python -m tests.testkit.measured_broker --settings FILE`.
It writes `turns.json` beside its settings, twenty times a second.

It runs on asyncio's own loop, each turn of which can be measured. A turn is one callback between two polls of the
sockets; `cpu_ms` is its CPU time, which does not depend on other load of the machine.
"""

from __future__ import annotations

import asyncio
import json
import os
import sys
import threading
import time
from asyncio import events
from collections import deque
from pathlib import Path
from typing import Any, Final

# Number of recorded turns; the oldest are dropped.
KEPT_MAX: Final = 2_000
WRITTEN_EVERY_S: Final = 0.05
# Shorter turns are not recorded.
FROM_MS: Final = 2.0

turns: deque[dict[str, Any]] = deque(maxlen=KEPT_MAX)
_run = events.Handle._run


def _measured(handle: Any) -> None:
    cpu_s, wall_s = time.thread_time(), time.perf_counter()
    _run(handle)
    cpu_ms, wall_ms = (time.thread_time() - cpu_s) * 1000, (time.perf_counter() - wall_s) * 1000
    if wall_ms < FROM_MS:
        return
    turns.append({"what": _name(handle), "at_s": time.time(), "cpu_ms": round(cpu_ms, 2), "wall_ms": round(wall_ms, 2)})


def _name(handle: Any) -> str:
    callback = handle._callback
    owner = getattr(callback, "__self__", None)
    if isinstance(owner, asyncio.Task):
        coroutine: Any = owner.get_coro()
        return str(getattr(coroutine, "__qualname__", coroutine))
    return str(getattr(callback, "__qualname__", callback))


def _write(file: Path) -> None:
    while True:
        time.sleep(WRITTEN_EVERY_S)
        ordered = list(turns)
        ordered.sort(key=lambda turn: -turn["cpu_ms"])
        temporary = file.with_suffix(".new")
        temporary.write_text(json.dumps(ordered))
        temporary.replace(file)


def main() -> int:
    settings = Path(sys.argv[sys.argv.index("--settings") + 1])
    os.environ["PENSTOCK_NATIVE"] = "0"
    sys.modules["uvloop"] = None  # type: ignore[assignment]
    events.Handle._run = _measured
    threading.Thread(target=_write, args=[settings.with_name("turns.json")], daemon=True).start()
    from brokers.engine.__main__ import main as engine

    return engine()


if __name__ == "__main__":
    sys.exit(main())
