"""DescribeCluster and FindCoordinator in every version."""

from __future__ import annotations

from brokers.engine.protocol.apis import ApiKey
from brokers.engine.protocol.messages.cluster import DescribeClusterRequest
from brokers.engine.protocol.messages.groups import FindCoordinatorRequest
from tests.differential.play import Player


def script(player: Player) -> None:
    for version in range(2):
        for operations in (False, True):
            for endpoint_type in (0, 1, 2, 3) if version else (1,):
                request = DescribeClusterRequest(
                    include_cluster_authorized_operations=operations, endpoint_type=endpoint_type
                )
                label = f"cluster v{version}: operations {operations}, endpoint type {endpoint_type}"
                player.ask(label, ApiKey.DESCRIBE_CLUSTER, version, request)
    for version in range(7):
        _coordinator(player, version)


def _coordinator(player: Player, version: int) -> None:
    def ask(what: str, *keys: str, kind: int = 0) -> None:
        request = FindCoordinatorRequest(key=keys[0] if keys else "", key_type=kind, coordinator_keys=list(keys))
        player.ask(f"coordinator v{version}: {what}", ApiKey.FIND_COORDINATOR, version, request)

    if version >= 1:
        ask("an unknown kind of key", "key", kind=9)
        ask("a negative kind of key", "key", kind=-1)
    if version >= 4:
        ask("no keys")
