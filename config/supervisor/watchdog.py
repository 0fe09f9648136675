"""Watchdog of the supervisor: if the supervisor is killed, it ensures that no process of the run remains.

Children get their stop signal from the kernel; the watchdog waits for them, and terminates those that do not end by
themselves.
"""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

from brokers.infra.child_environment import RUN_VARIABLE
from config.environment import BASE_DIR
from config.supervisor.state import StateDirectory

GRACE_PERIOD_S = 10.0
# Message of an orderly end; a closed pipe without it means that the supervisor was killed.
GOODBYE = b"bye"


class SupervisorWatchdog:
    """The supervisor's side of its watchdog: one end of a pipe, which the kernel closes however the supervisor ends."""

    def __init__(self, state: StateDirectory, environment: dict[str, str]) -> None:
        environment_without_run = {key: value for key, value in environment.items() if key != RUN_VARIABLE}
        with state.log_file("watchdog").open("ab") as log:
            self._process = subprocess.Popen(
                [sys.executable, "-m", "config.supervisor.watchdog", str(state.root)],
                stdin=subprocess.PIPE,
                stdout=log,
                stderr=log,
                cwd=BASE_DIR,
                env=environment_without_run,
                start_new_session=True,
            )

    def dismiss(self) -> None:
        """Dismisses the watchdog after an orderly stop."""
        self._process.communicate(GOODBYE)


def main(state_dir: str) -> int:
    """Waits for the supervisor's end, and cleans up if it was not orderly."""
    if sys.stdin.buffer.read() == GOODBYE:
        return 0
    names = StateDirectory(Path(state_dir)).run_processes().end(grace_period_s=GRACE_PERIOD_S)
    print(f"the supervisor was killed; had to end: {', '.join(names) or 'nothing'}", flush=True)  # noqa: T201
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1]))
