"""A watcher of the supervisor: when that one is killed, see to it that nothing of its run stays behind.

Children get their stop signal from the kernel; the warden waits for them, and ends what does not end by itself.
"""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

from brokers.infra.child_environment import RUN_VARIABLE
from config.environment import BASE_DIR
from config.supervisor.state import StateDirectory

PATIENCE_S = 10.0
# What the supervisor says before it ends in order; silence followed by the end of the pipe means it was killed.
GOODBYE = b"bye"


class Warden:
    """The supervisor's side: holds one end of a pipe, which the kernel closes however we end."""

    def __init__(self, state: StateDirectory, environment: dict[str, str]) -> None:
        outside = {key: value for key, value in environment.items() if key != RUN_VARIABLE}
        with state.log_file("warden").open("ab") as log:
            self._process = subprocess.Popen(
                [sys.executable, "-m", "config.supervisor.warden", str(state.root)],
                stdin=subprocess.PIPE,
                stdout=log,
                stderr=log,
                cwd=BASE_DIR,
                env=outside,
                start_new_session=True,
            )

    def dismiss(self) -> None:
        """Everything was stopped in order; there is nothing to watch for."""
        self._process.communicate(GOODBYE)


def main(state_dir: str) -> int:
    """Wait for the supervisor's end, and tidy up when it was not in order."""
    if sys.stdin.buffer.read() == GOODBYE:
        return 0
    names = StateDirectory(Path(state_dir)).family().end(patience_s=PATIENCE_S)
    print(f"the supervisor was killed; had to end: {', '.join(names) or 'nothing'}", flush=True)  # noqa: T201
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1]))
