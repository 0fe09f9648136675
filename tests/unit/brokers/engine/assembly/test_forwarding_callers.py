"""Identity of forwarded calls: a client with its address, or for the control plane the instance itself."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any, cast

import pytest

from brokers.engine.access.authorizer import Address, owner_address, peer_address
from brokers.engine.access.principals import ANONYMOUS, Principal
from brokers.engine.assembly.coordinator_forwarding import CoordinatorForwarding
from brokers.engine.handlers.services import ForwardingFailed
from brokers.engine.replication.coordinator_forwarders import ForwardedIdentity, ForwardingUnavailable

MINE = "ins-aaaaaaaa"


@pytest.mark.parametrize(
    ("address", "user", "said"),
    [
        (peer_address("203.0.113.7"), ANONYMOUS, "203.0.113.7"),
        (peer_address("203.0.113.7"), "alice", "203.0.113.7 alice"),
        (peer_address("203.0.113.7"), "a b\0c", "203.0.113.7 a%20b%00c"),
        (owner_address("203.0.113.7"), ANONYMOUS, ""),
    ],
)
async def test_rights_and_lists_at_the_coordinator_are_those_of_the_client_and_not_the_control_planes(
    address: Address, user: str, said: str
) -> None:
    asked: list[ForwardedIdentity] = []

    def connect(_broker: Any, _line: Any, forwarded_identity: ForwardedIdentity) -> Any:
        asked.append(forwarded_identity)
        raise ForwardingUnavailable("this is a test")

    services: Any = SimpleNamespace(
        clock=SimpleNamespace(monotonic_ms=lambda: 0),
        metadata=SimpleNamespace(current=SimpleNamespace(subscribe=lambda _follow: None)),
        coordination=SimpleNamespace(),
    )
    coordinator_forwarding = CoordinatorForwarding(services, connect)
    coordinator_forwarding.on_image(cast("Any", None), cast("Any", SimpleNamespace(brokers={2: SimpleNamespace(id=2)})))

    with pytest.raises(ForwardingFailed):
        await coordinator_forwarding.request(2, Principal(user, MINE), address, "console", 15, 5, None)

    assert asked == [ForwardedIdentity(MINE, said)]
