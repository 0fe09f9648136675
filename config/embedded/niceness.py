"""Which programs give way to others where the cores are few (decision 82)."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Final

# Where the kernel groups processes by session (sched_autogroup), niceness only orders those of one session, and the
# session as a whole has one of its own.
SESSION_FILE: Final = Path("/proc/self/autogroup")


def give_way(niceness: int) -> None:
    """Lowers the priority of this process, of its session if it leads one, and of what it starts. `niceness`: 1 to 19.

    For `Child.before_exec`, which runs when the child has a session of its own.
    """
    os.nice(niceness)
    if os.getsid(0) != os.getpid():
        return
    try:
        SESSION_FILE.write_text(str(niceness))
    except OSError:  # a kernel without such groups, or one that is not to be written to
        return
