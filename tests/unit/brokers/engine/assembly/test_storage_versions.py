"""Version of storage reports: the latest that this broker and the controller know."""

from __future__ import annotations

import pytest

from brokers.engine.assembly.storage_capacity import API_NAME, LATEST_VERSION, _version
from brokers.engine.cluster.image import BrokerInfo, ClusterImage, ImageDelta

CONTROLLER = 2


def image(*call_versions: tuple[str, int]) -> ClusterImage:
    controller = BrokerInfo(CONTROLLER, "127.0.0.1", 1, 1, None, 10, call_versions=call_versions)
    return ClusterImage("cl-test", controller_id=CONTROLLER).with_changes(ImageDelta(brokers={CONTROLLER: controller}))


@pytest.mark.parametrize(
    ("registered", "sent"),
    [
        ([], 0),
        ([("another_call", 9)], 0),
        ([(API_NAME, 0)], 0),
        ([(API_NAME, LATEST_VERSION)], LATEST_VERSION),
        ([(API_NAME, LATEST_VERSION + 1)], LATEST_VERSION),
    ],
)
def test_a_controller_gets_no_later_version_than_it_registered(registered: list[tuple[str, int]], sent: int) -> None:
    assert _version(image(*registered)) == sent


def test_without_a_controller_the_first_version_is_sent() -> None:
    assert _version(ClusterImage("cl-test")) == 0
