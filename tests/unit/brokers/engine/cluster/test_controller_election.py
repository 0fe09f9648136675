"""An elected broker gets the controller epoch that was written for it, whatever happens between two reads (CTL-1)."""

from __future__ import annotations

from collections.abc import Awaitable, Callable

from brokers.contract import paths
from brokers.engine.cluster import controller_writes
from brokers.engine.cluster.tree import Delete, Node, Watch
from tests.testkit.fake_store import FakeEnsemble, FakeTree


class Interrupted(FakeTree):
    """Runs an action after the first read."""

    then: Callable[[], Awaitable[object]] | None = None

    async def get(self, path: str, watch: Watch | None = None) -> Node | None:
        result = await super().get(path, watch)
        then, self.then = self.then, None
        if then is not None:
            await then()
        return result


async def test_a_deposed_controller_does_not_get_the_epoch_of_its_successor() -> None:
    """An operator removed the node to force an election: two brokers would write in one controller epoch."""
    ensemble = FakeEnsemble()
    other = ensemble.connect()
    mine = Interrupted(ensemble, 4711)
    first = await controller_writes.elect(mine, 1, 0)
    assert first is not None
    assert await controller_writes.elect(mine, 1, 0) == first

    async def replaced() -> None:
        await other.commit([Delete(paths.CONTROLLER, None)])
        taken = await controller_writes.elect(other, 2, 0)
        assert taken is not None
        assert taken.epoch == first.epoch + 1

    mine.then = replaced
    assert await controller_writes.elect(mine, 1, 0) is None
