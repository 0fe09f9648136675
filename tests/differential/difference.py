"""One answer, or several of a kind, that we mean to give otherwise than Apache Kafka does, and the usual reasons."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from fnmatch import fnmatchcase
from typing import Any

ONE_ERROR_CODE = "an unknown server error tells the client nothing; the code that names the fault does (observed-3.9.1)"
NOTHING_DROPPED = "an entry listed twice is answered twice, and what was sent in it is not dropped"
AS_LISTED = "a topic listed without partitions is answered as listed"


@dataclass(frozen=True)
class Difference:
    """An intended difference. `ours(recorded)` returns our answer; it may change the recorded answer in place."""

    script: str
    label: str
    reason: str
    ours: Callable[[Any], Any]

    def concerns(self, script: str, label: str) -> bool:
        return script == self.script and fnmatchcase(label, self.label)
