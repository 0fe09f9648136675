"""Calls that wait while rights may be revoked: fetches for records, members for their group. When an instance's access
control entries or users change, or its default for resources without entries, its waiting calls are checked again, once
each, in turns of the event loop; the time is charged to the instance.
"""

from __future__ import annotations

from collections.abc import Callable, Coroutine, Iterator
from contextlib import contextmanager
from time import perf_counter
from typing import Any, Final, Protocol

from brokers.engine.cluster.image import ClusterImage
from brokers.engine.scheduling.turn_queue import TurnQueue

# Maximum duration of one turn; a check takes some microseconds.
TURN_S_MAX: Final = 0.002


class WaitingCall(Protocol):
    """A call that waits, for example a fetch for records."""

    def check_right(self) -> object:
        """Ends the wait if its principal may no longer make the call."""


class WaitingCalls:
    """Waiting calls of one broker. `spawn` starts a task; `charge(instance_id, spent_s)` charges the time of checks."""

    __slots__ = ("_by_instance", "_charge", "_needs_check", "_spawn", "_turns")

    def __init__(
        self,
        turns: TurnQueue,
        spawn: Callable[[Coroutine[Any, Any, None]], object],
        charge: Callable[[str, float], object],
    ) -> None:
        self._turns = turns
        self._spawn = spawn
        self._charge = charge
        # In order of arrival: a set would have a different order in every process.
        self._by_instance: dict[str, dict[WaitingCall, None]] = {}
        # Instances whose calls are being checked, and True if something changed since that began.
        self._needs_check: dict[str, bool] = {}

    def add(self, instance_id: str, call: WaitingCall) -> None:
        waiting = self._by_instance.get(instance_id)
        if waiting is None:
            self._by_instance[instance_id] = {call: None}
        else:
            waiting[call] = None

    def remove(self, instance_id: str, call: WaitingCall) -> None:
        """Removes a call, if it is there."""
        waiting = self._by_instance.get(instance_id)
        if waiting is not None:
            waiting.pop(call, None)
            if not waiting:
                del self._by_instance[instance_id]

    @contextmanager
    def checking_on_change(self, instance_id: str | None, check: Callable[[], object]) -> Iterator[None]:
        """Calls `check` after each change of rights while the block lasts. An `instance_id` of None stands for the
        cluster itself, which has all rights: nothing is checked.
        """
        if instance_id is None:
            yield
            return
        call = _CallbackCall(check)
        self.add(instance_id, call)
        try:
            yield
        finally:
            self.remove(instance_id, call)

    def count(self, instance_id: str) -> int:
        return len(self._by_instance.get(instance_id, ()))

    def on_image(self, before: ClusterImage, after: ClusterImage) -> None:
        if before.acls is after.acls and before.users is after.users and before.instances is after.instances:
            return
        for instance_id in self._by_instance:
            if _have_changed(before, after, instance_id):
                is_under_way = instance_id in self._needs_check
                self._needs_check[instance_id] = True
                if not is_under_way:
                    self._spawn(self._check_until_unchanged(instance_id))

    async def _check_until_unchanged(self, instance_id: str) -> None:
        """Checks the calls of an instance until nothing changes meanwhile: one check of an instance runs at a time."""
        try:
            while self._needs_check[instance_id]:
                self._needs_check[instance_id] = False
                await self._check_once(instance_id)
        finally:
            del self._needs_check[instance_id]

    async def _check_once(self, instance_id: str) -> None:
        # Calls that begin to wait after the change were checked against the new rights.
        remaining_calls = list(self._by_instance.get(instance_id, ()))
        remaining_calls.reverse()
        while remaining_calls:
            await self._turns.enqueue(instance_id)
            began_s = perf_counter()
            while remaining_calls and perf_counter() - began_s < TURN_S_MAX:
                call = remaining_calls.pop()
                if call in self._by_instance.get(instance_id, ()):
                    call.check_right()
            self._charge(instance_id, perf_counter() - began_s)


class _CallbackCall:
    __slots__ = ("check_right",)

    def __init__(self, check: Callable[[], object]) -> None:
        self.check_right = check


def _have_changed(before: ClusterImage, after: ClusterImage, instance_id: str) -> bool:
    """True if a client of the instance may have lost a right."""
    return (
        before.acls.by_instance.get(instance_id) is not after.acls.by_instance.get(instance_id)
        or before.users.by_instance.get(instance_id) is not after.users.by_instance.get(instance_id)
        or _is_open(before, instance_id) is not _is_open(after, instance_id)
    )


def _is_open(image: ClusterImage, instance_id: str) -> bool:
    """True if resources without entries are open to every client."""
    instance = image.instances.get(instance_id)
    return instance is not None and instance.document.allow_everyone_if_no_acl
