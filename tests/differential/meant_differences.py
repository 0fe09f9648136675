"""What we answer otherwise than Apache Kafka 3.9.1, on purpose, each with its reason.

A difference names the scripts and labels it is about (shell patterns) and says what is put in place of the recorded
answer before ours is compared with it. A test keeps the list honest: one that changes no recorded answer must go.
"""

from __future__ import annotations

import copy
from collections.abc import Callable
from dataclasses import dataclass
from fnmatch import fnmatchcase
from typing import Any


@dataclass(frozen=True)
class Difference:
    """`ours(recorded)` answers what we say instead; it may change the recorded answer in place."""

    script: str
    label: str
    reason: str
    ours: Callable[[Any], Any]

    def concerns(self, script: str, label: str) -> bool:
        return script == self.script and fnmatchcase(label, self.label)


def expected(script: str, label: str, recorded: Any) -> Any:
    """What our broker should answer: the recorded answer, or what we mean to say instead."""
    answer = copy.deepcopy(recorded)
    for difference in DIFFERENCES:
        if difference.concerns(script, label):
            answer = difference.ours(answer)
    return answer


DIFFERENCES: tuple[Difference, ...] = ()
