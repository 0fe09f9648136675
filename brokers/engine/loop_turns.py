"""Counts the turns of the event loop that took too long, by call and instance (docs/explanation/SECURITY.md).

A broker's event loop is shared by all its tenants: one request's long turn delays all others.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Coroutine, Generator
from time import perf_counter
from types import coroutine
from typing import Any, Final

from brokers.engine.scheduling.inline_wakeup import InlineWakeup

LONG_TURN_S: Final = 0.010
# Number of instances counted separately; all others are counted together.
INSTANCES_MAX: Final = 1_000
OTHERS: Final = "(other)"
CLUSTER: Final = "(cluster)"


class LoopTurns:
    """Counters of long turns, `by_api` and `by_instance`; `longest_of` is the call and instance of `longest_s`."""

    __slots__ = ("_on_long_turn", "by_api", "by_instance", "longest_of", "longest_s")

    def __init__(self, on_long_turn: Callable[[int, str, float], object] = lambda _api, _instance, _s: None) -> None:
        self._on_long_turn = on_long_turn
        self.by_api: dict[int, int] = {}
        self.by_instance: dict[str, int] = {}
        self.longest_s = 0.0
        self.longest_of: tuple[int, str] | None = None

    def record(self, api_key: int, instance_id: str | None, spent_s: float) -> None:
        """Records a turn of `spent_s` for a request of an instance; None stands for the cluster itself."""
        if spent_s < LONG_TURN_S:
            return
        name = instance_id or CLUSTER
        self.by_api[api_key] = self.by_api.get(api_key, 0) + 1
        if name not in self.by_instance and len(self.by_instance) >= INSTANCES_MAX:
            name = OTHERS
        self.by_instance[name] = self.by_instance.get(name, 0) + 1
        if spent_s > self.longest_s:
            self.longest_s, self.longest_of = spent_s, (api_key, name)
        self._on_long_turn(api_key, name, spent_s)


@coroutine
def timed(
    work: Coroutine[Any, Any, Any],
    on_turn: Callable[[float], object],
    next_turn: Callable[[], Awaitable[None]] | None = None,
    turn_to_resume: Callable[[], Awaitable[None] | None] | None = None,
) -> Generator[Any, Any, Any]:
    """Awaits `work`, and reports the seconds of each of its turns on the event loop to `on_turn`.

    When `work` yields to others (`asyncio.sleep(0)`), it continues after `next_turn`. Before each step the awaitable
    that `turn_to_resume` returns is awaited, because the event that `work` awaited may have woken thousands of other
    tasks. A step that an `InlineWakeup` begins does not wait, because it is a turn already.
    """
    steps = work.__await__()
    value: Any = None
    error: BaseException | None = None
    turn = None if turn_to_resume is None else turn_to_resume()
    if turn is not None:
        try:
            yield from turn.__await__()
        except BaseException:
            steps.close()
            raise
    while True:
        began_s = perf_counter()
        try:
            pending = steps.send(value) if error is None else steps.throw(error)
        except StopIteration as end:
            return end.value
        finally:
            on_turn(perf_counter() - began_s)
        try:
            if pending is None and next_turn is not None:
                yield from next_turn().__await__()
                value, error = None, None
            else:
                value, error = (yield pending), None
            if turn_to_resume is not None and not isinstance(pending, InlineWakeup):
                turn = turn_to_resume()
                if turn is not None:
                    yield from turn.__await__()
        except GeneratorExit:
            steps.close()
            raise
        except BaseException as thrown:
            value, error = None, thrown
