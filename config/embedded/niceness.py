"""Lower priority of programs that yield to others when cores are scarce (decision 82)."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Final

# With sched_autogroup the kernel groups processes by session: niceness only orders processes of a session, and the
# session as a whole has a niceness of its own.
SESSION_FILE: Final = Path("/proc/self/autogroup")


def lower_priority(niceness: int) -> None:
    """Lowers the priority of this process, of its session if it leads one, and of its children. `niceness`: 1 to 19.

    It is meant for `Child.before_exec`, which runs when the child has a session of its own.
    """
    os.nice(niceness)
    if os.getsid(0) != os.getpid():
        return
    try:
        SESSION_FILE.write_text(str(niceness))
    except OSError:  # a kernel without autogroups, or a read-only one
        return
