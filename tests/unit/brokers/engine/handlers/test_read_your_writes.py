"""A change is followed by a wait until the metadata shows it, up to a deadline."""

from __future__ import annotations

import asyncio

import pytest

from brokers.engine.cluster.current import CurrentImage
from brokers.engine.cluster.image import ClusterImage
from brokers.engine.handlers import zookeeper_change
from brokers.engine.handlers.zookeeper_change import wait_until_applied


def cluster_image(config_change: int) -> ClusterImage:
    return ClusterImage("test", config_change=config_change)


async def test_a_change_is_waited_for_until_the_image_holds_the_latest_of_them() -> None:
    current = CurrentImage(cluster_image(3))
    waiting = asyncio.ensure_future(wait_until_applied(current, [5, None, 4]))

    done = []
    for change in (4, 5):
        await asyncio.wait([waiting], timeout=0)
        done.append(waiting.done())
        current.publish(cluster_image(change))
    await waiting

    assert done == [False, False]


@pytest.mark.parametrize("changes", [[], [None], [3], [2, None, 1]])
async def test_a_change_already_in_the_image_is_not_waited_for(
    changes: list[int | None], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(zookeeper_change, "APPLIED_S_MAX", 3600.0)

    await wait_until_applied(CurrentImage(cluster_image(3)), changes)


async def test_a_late_image_does_not_hold_the_answer_for_ever(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(zookeeper_change, "APPLIED_S_MAX", 0.01)
    current = CurrentImage(cluster_image(3))

    await wait_until_applied(current, [4])

    assert current.image.config_change == 3
