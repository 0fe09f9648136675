"""The upstream broker that sessions forward to, and the routes whose clients' calls are forwarded."""

from __future__ import annotations

import asyncio
from typing import Final
from weakref import WeakValueDictionary

from brokers.contract.upstream import Address
from brokers.engine.access.principals import Principal
from brokers.engine.handlers.api_table import DISPATCH_TABLE
from brokers.engine.handlers.auth.internal_sessions import AuthenticatedChannel
from brokers.engine.handlers.auth.tenant_sasl import ReportFailure, SaslRoute
from brokers.engine.handlers.services import BrokerServices
from brokers.engine.protocol.messages.sasl import ApiVersion
from brokers.engine.upstream.connection import UpstreamConnection, UpstreamLogin
from brokers.engine.upstream.response_memory import ResponseMemory
from brokers.engine.upstream.session import GatewaySession
from brokers.engine.upstream.storage import UpstreamStorage
from brokers.engine.upstream.versions import OWN_WITH_SASL, Versions, api_version_list, intersection

# Limit of instances whose document has none.
PARTITIONS_MAX_DEFAULT: Final = 1_000


# Locks by instance, as long as a request holds or awaits one.
CreationLocks = WeakValueDictionary[str, asyncio.Lock]


class UpstreamNode:
    """One upstream broker as the sessions of its clients use it. `served` has the calls and versions to forward; it is
    empty until the first `connect`. `own_versions` has the calls that the gateway answers from its own metadata.
    """

    def __init__(
        self,
        services: BrokerServices,
        address: Address,
        login: UpstreamLogin,
        creation_locks: CreationLocks,
        own_versions: Versions,
        storage: UpstreamStorage,
    ) -> None:
        self.services = services
        self.address = address
        self.login = login
        self.served: Versions = {}
        self.own_versions = own_versions
        self.storage = storage
        self.responses = ResponseMemory(services.metadata.current.tenant_of)
        self._creation_locks = creation_locks

    async def connect(self) -> UpstreamConnection:
        """Opens a connection to the upstream broker, and updates `served`. Raises UpstreamLost."""
        connection = await UpstreamConnection.open(self.address, self.login)
        self.served = intersection(connection.versions)
        return connection

    def creation_lock(self, instance_id: str) -> asyncio.Lock:
        """Returns the lock under which topics of the instance are counted and created."""
        return self._creation_locks.setdefault(instance_id, asyncio.Lock())

    def partitions_max(self, instance_id: str) -> int:
        """Returns the limit on the partitions of all topics of the instance; 0 for a deleted instance."""
        instance = self.services.metadata.current.image.instances.get(instance_id)
        if instance is None:
            return 0
        partitions_max = instance.document.partitions_max
        return PARTITIONS_MAX_DEFAULT if partitions_max is None else partitions_max


class GatewayRoute(SaslRoute):
    """A listener whose clients authenticate; their calls are forwarded."""

    __slots__ = ("_node",)

    def __init__(self, node: UpstreamNode, instance_id: str, name: str, report_failure: ReportFailure) -> None:
        super().__init__(node.services, instance_id, name, DISPATCH_TABLE._replace(fast_codec={}), report_failure)
        self._node = node

    def served(self) -> list[ApiVersion]:
        return api_version_list({**self._node.served, **self._node.own_versions, **OWN_WITH_SASL})

    def session(self, channel: AuthenticatedChannel, principal: Principal) -> GatewaySession:
        return GatewaySession(self._node, channel, principal, dict(self.dispatch_table.fast_codec), self.name)
