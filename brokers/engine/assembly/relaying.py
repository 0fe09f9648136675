"""How this broker passes on what is for a coordinator beyond an instance's brokers (`handlers.gateway`)."""

from __future__ import annotations

from typing import Any, Final

from brokers.engine.access.authorizer import Address, Owners
from brokers.engine.cluster.image import ClusterImage
from brokers.engine.handlers.context import Engine, RelayFailed
from brokers.engine.replication.relays import Behalf, ConnectFor, Relays, RelayUnavailable

SWEEP_INTERVAL_S: Final = 5.0


class Relaying:
    """Follows the image; `handlers.context.Relay` of the engine."""

    def __init__(self, engine: Engine, connect: ConnectFor) -> None:
        self._relays = Relays(connect=connect, monotonic_ms=engine.clock.monotonic_ms)
        engine.relay = self.request
        engine.current.subscribe(self.on_image)

    def on_image(self, _before: ClusterImage, after: ClusterImage) -> None:
        self._relays.on_brokers(after.brokers)

    async def request(
        self,
        broker_id: int,
        instance_id: str,
        address: Address,
        client_id: str,
        api_key: int,
        version: int,
        message: Any,
    ) -> Any:
        behalf = Behalf(instance_id, "" if isinstance(address, Owners) else str(address))
        try:
            return await self._relays.request(broker_id, behalf, client_id, api_key, version, message)
        except RelayUnavailable as error:
            raise RelayFailed(str(error)) from error

    def sweep(self) -> None:
        """Call every SWEEP_INTERVAL_S."""
        self._relays.sweep()

    def close(self) -> None:
        self._relays.close()
