"""Connections for forwarding to coordinators outside of an instance's brokers (`groups.coordinator_forwarding`)."""

from __future__ import annotations

from typing import Any, Final

from brokers.engine.access.authorizer import Address, OwnerAddress
from brokers.engine.access.principals import Principal
from brokers.engine.access.sasl import ForwardedClient
from brokers.engine.cluster.image import ClusterImage
from brokers.engine.handlers.services import BrokerServices, ForwardingFailed
from brokers.engine.replication.coordinator_forwarders import (
    ConnectFor,
    ForwardedIdentity,
    Forwarders,
    ForwardingUnavailable,
)

SWEEP_INTERVAL_S: Final = 5.0


class CoordinatorForwarding:
    """Implements `handlers.services.Forwarder` with connections to the live brokers of the metadata."""

    def __init__(self, services: BrokerServices, connect: ConnectFor) -> None:
        self._forwarders = Forwarders(connect=connect, monotonic_ms=services.clock.monotonic_ms)
        services.coordination.forwarder = self.request
        services.metadata.current.subscribe(self.on_image)

    def on_image(self, _before: ClusterImage, after: ClusterImage) -> None:
        self._forwarders.on_brokers(after.brokers)

    async def request(
        self,
        broker_id: int,
        principal: Principal,
        address: Address,
        client_id: str,
        api_key: int,
        version: int,
        message: Any,
    ) -> Any:
        """Forwards a request of a tenant's client and returns the coordinator's response.

        Raises:
            ForwardingFailed: the coordinator's broker is not reachable.
        """
        assert principal.instance_id is not None, "requests of the cluster itself are not forwarded"
        is_owner = isinstance(address, OwnerAddress)
        client = "" if is_owner else ForwardedClient(str(address), principal.user).authorization_id
        forwarded_identity = ForwardedIdentity(principal.instance_id, client)
        try:
            return await self._forwarders.request(broker_id, forwarded_identity, client_id, api_key, version, message)
        except ForwardingUnavailable as error:
            raise ForwardingFailed(str(error)) from error

    def sweep(self) -> None:
        """Closes idle connections; called every SWEEP_INTERVAL_S."""
        self._forwarders.sweep()

    def close(self) -> None:
        self._forwarders.close()
