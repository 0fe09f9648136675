"""The controller works sequentially, and does not wait for brokers that died or froze (CTL-6, CTL-7)."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from tests.testkit.cluster import Member
from tests.testkit.fake_store import FakeEnsemble

INSTANCE = "ins-aaaaaaaa"
WRITES = ("write_states", "finish_reassignments", "finish_deletion", "elect", "create_partitions")
TURNS = 20


class Slowly:
    """A store whose writes take many turns of the loop; counts the most that were under way at once."""

    def __init__(self, member: Member, monkeypatch: pytest.MonkeyPatch) -> None:
        self.begun: list[str] = []
        self.running = self.most = 0
        for name in WRITES:
            monkeypatch.setattr(member.store, name, self._slowed(name, getattr(member.store, name)))

    def _slowed(self, name: str, real: Callable[..., Awaitable[Any]]) -> Callable[..., Awaitable[Any]]:
        async def slowed(*given: Any, **named: Any) -> Any:
            self.begun.append(name)
            self.running += 1
            self.most = max(self.most, self.running)
            try:
                for _ in range(TURNS):
                    await asyncio.sleep(0)
                return await real(*given, **named)
            finally:
                self.running -= 1

        return slowed


async def test_images_that_come_while_a_decision_is_carried_out_wait_for_it(monkeypatch: pytest.MonkeyPatch) -> None:
    """CTL-6: one queue, and no lock."""
    ensemble = FakeEnsemble()
    members = [Member(ensemble.connect(), broker_id=id, controls=id == 1) for id in (1, 2, 3)]
    slowly = Slowly(members[0], monkeypatch)
    for member in members:
        await member.start()
    controller, other, third = members
    await controller.until(lambda image: len(image.brokers) == 3)
    await other.publish_instance(INSTANCE, [1, 2, 3])

    names = [f"t{number}" for number in range(8)]
    await asyncio.gather(
        *(other.create_topic(INSTANCE, name, partitions=3, replication_factor=2) for name in names[:4]),
        *(third.create_topic(INSTANCE, name, partitions=3, replication_factor=2) for name in names[4:]),
    )
    ensemble.expire(third.tree)  # type: ignore[arg-type]
    await asyncio.gather(
        *(other.store.delete_topic(other.image, instance_id=INSTANCE, name=name) for name in names[:3])
    )
    await other.until(lambda image: len([name for name in image.topics if name.startswith(INSTANCE)]) == 5)
    await other.until_complete()

    assert {"elect", "write_states", "finish_deletion"} <= set(slowly.begun)
    assert slowly.most == 1
    for member in members:
        await member.stop()
