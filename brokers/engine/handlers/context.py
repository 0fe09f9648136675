"""View of the cluster for one connection, and the context of one call (CKA-5, CKA-9, CKA-17, WIRE-13)."""

from __future__ import annotations

import hashlib
from base64 import urlsafe_b64encode
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple, Protocol

from brokers.contract import paths
from brokers.contract.acls import CLUSTER_NAME, AclOperation, ResourceType
from brokers.contract.documents import InstanceDocument
from brokers.contract.routes import DEFAULT_ROUTE
from brokers.engine.access.acls import OPEN, UNRESTRICTED, AclIndexes, Rights
from brokers.engine.access.authorizer import UNKNOWN_TOPIC_OR_PARTITION, Address, OwnerAddress, decide
from brokers.engine.access.namespace import Namespace
from brokers.engine.access.principals import ANONYMOUS, Principal
from brokers.engine.cluster.image import ClusterImage, InstanceImage, TopicImage
from brokers.engine.handlers.audit_trail import Source
from brokers.engine.handlers.served_api import DENIALS, ServedApi
from brokers.engine.handlers.services import BrokerServices
from brokers.engine.scheduling.fair_turns import InstanceTurns
from brokers.engine.throttling.charging import Limiter, LimitsByEntity
from brokers.engine.throttling.waits import Mute
from brokers.engine.values import Slice

NO_BROKER = -1
# Instance states that apply to the cluster itself.
ACTIVE = "active"
DELETING = "deleting"


class DeferredResponse(Protocol):
    """A response that is completed later; implemented by `network.pending_responses.PendingResponse`."""

    def complete(self, frame: bytes) -> None: ...


class RetainedFrame(Protocol):
    """The buffer of a request in processing; implemented by `network.buffers.RetainedFrame`."""

    def pin(self) -> None:
        """Retains the buffer until `unpin`, even after `release`; for a thread that reads it."""

    def unpin(self) -> None: ...
    def release(self) -> None: ...


class Channel(Protocol):
    """The connection as handlers see it; implemented by `network.connection.Connection`.

    After a response the connection is muted for `delay_ms`, or until `mute` ends.
    """

    peer_host: str
    is_closed: bool

    @property
    def turns(self) -> InstanceTurns:
        """Returns the share of the event loop that belongs to the client's instance."""

    def respond(self, frame: bytes, delay_ms: int = 0, mute: Mute | None = None) -> None: ...
    def respond_parts(
        self,
        parts: Sequence[bytes | Slice],
        delay_ms: int = 0,
        on_written: Callable[[int], object] | None = None,
        mute: Mute | None = None,
    ) -> None: ...
    def finish_without_response(self, delay_ms: int = 0, mute: Mute | None = None) -> None: ...
    def defer(self, on_closed: Callable[[], object]) -> DeferredResponse: ...
    def charge_request_copy(self, count: int) -> None:
        """Counts the `count` bytes of a copied request, which is decoded later, as memory of its instance until
        `release_request_copy`.
        """

    def release_request_copy(self) -> None: ...
    def retain_frame(self) -> RetainedFrame | None: ...
    def close(self, reason: str) -> None: ...
    def fail(self, error: Exception) -> None:
        """Counts and logs a malformed request or a failure of the broker, and closes the connection (decision 22)."""


class Endpoint(NamedTuple):
    """A live broker with its address on the listener of the request."""

    broker_id: int
    host: str
    port: int
    rack: str | None


def rights_in(image: ClusterImage, indexes: AclIndexes, principal: Principal, address: Address) -> Rights:
    """Returns the rights of a principal that calls from an address.

    A principal that acts for its instance on the internal listener is the owner. A forwarded call has the rights of the
    client that sent it.
    """
    instance_id = principal.instance_id
    if instance_id is None or isinstance(address, OwnerAddress):
        return UNRESTRICTED
    # An anonymous client is no user, even if a user has that name.
    if principal.user != ANONYMOUS:
        user = image.users.of_instance(instance_id).get(paths.sanitise(principal.user))
        if user is not None and user.superuser:
            return UNRESTRICTED
    instance = image.instances.get(instance_id)
    everyone = instance is not None and instance.document.allow_everyone_if_no_acl
    documents = image.acls.of_instance(instance_id)
    if everyone and not documents:
        return OPEN
    return indexes.rights(instance_id, documents, principal.user, str(address), everyone=everyone)


class TenantMetadataView:
    """Cluster metadata as one principal sees it on one listener. `instance` is None for the cluster itself, and for a
    deleted instance.
    """

    __slots__ = (
        "_endpoints", "_rights", "client_limits", "image", "instance", "internal", "metadata_version", "namespace",
        "principal", "route_name", "state",
    )  # fmt: skip

    def __init__(
        self, metadata_version: object, image: ClusterImage, principal: Principal, route_name: str = DEFAULT_ROUTE
    ) -> None:
        self.metadata_version = metadata_version
        self.image = image
        self.principal = principal
        self.internal = principal.internal
        self.instance: InstanceImage | None = None
        self.state = ACTIVE
        # Limits of the instance's clients; none on the internal listener.
        self.client_limits: LimitsByEntity = {}
        self._endpoints: dict[int, Endpoint] | None = None
        self._rights: Rights | None = None
        self.route_name = route_name
        instance_id = principal.instance_id
        topics: Mapping[bytes, TopicImage]
        if instance_id is None:
            topics = image.topics_by_encoded_name
        else:
            self.instance = image.instances.get(instance_id)
            topics = {} if self.instance is None else self.instance.topics
            self.state = DELETING if self.instance is None else self.instance.document.state
            if self.instance is not None and not self.internal:
                self.client_limits = image.quotas.of_instance(instance_id)
        self.namespace: Namespace[TopicImage] = Namespace(instance_id, topics, image.topics_by_id)

    @property
    def instance_id(self) -> str | None:
        return self.principal.instance_id

    def rights(self, indexes: AclIndexes, address: Address) -> Rights:
        """Returns the rights of the principal, cached, since a view belongs to one connection with one address."""
        rights = self._rights
        if rights is None:
            rights = self._rights = rights_in(self.image, indexes, self.principal, address)
        return rights

    @property
    def endpoints(self) -> Mapping[int, Endpoint]:
        """Returns the live brokers by id (WIRE-13), with their addresses on the client's route; brokers without such an
        address are omitted. A tenant never sees an internal address (CKA-5).
        """
        if self._endpoints is None:
            self._endpoints = dict(self._find_endpoints())
        return self._endpoints

    def _find_endpoints(self) -> list[tuple[int, Endpoint]]:
        result = []
        addresses = None if self.instance is None else self._addresses(self.instance.document)
        for broker_id, broker in sorted(self.image.brokers.items()):
            if addresses is not None and broker_id not in addresses:
                continue
            if self.internal or addresses is None:
                result.append((broker_id, Endpoint(broker_id, broker.host, broker.port, broker.rack)))
            else:
                host, _, port = addresses[broker_id].rpartition(":")
                result.append((broker_id, Endpoint(broker_id, host.strip("[]"), int(port), broker.rack)))
        return result

    def _addresses(self, document: InstanceDocument) -> Mapping[int, str]:
        """Returns the addresses of the route by broker id; on the internal listener, those of the instance."""
        if self.internal:
            return document.endpoints
        route = document.route(self.route_name)
        return {} if route is None else route.endpoints

    @property
    def controller_id(self) -> int:
        """Returns the controller's id; any broker will do, so it only has to be in this response (CKA-6)."""
        if self.image.controller_id in self.endpoints:
            return self.image.controller_id
        return min(self.endpoints, default=NO_BROKER)

    @property
    def cluster_id(self) -> str:
        """Returns the cluster id. Each instance has its own: a shared id would disclose which instances are in the same
        cluster.
        """
        if self.instance_id is None:
            return self.image.cluster_id
        digest = hashlib.sha256(f"{self.image.cluster_id}/{self.instance_id}".encode()).digest()
        return urlsafe_b64encode(digest[:16]).rstrip(b"=").decode()


@dataclass(slots=True)
class RequestContext:
    """One request other than Produce and Fetch. `client_id` is "" if the client sent none."""

    services: BrokerServices
    view: TenantMetadataView
    api: ServedApi
    version: int
    client_id: str
    address: Address
    # True if the call changed something in ZooKeeper, which its instance pays for (`change_turns`).
    has_changed: bool = False
    # Limiter of the client's changes by the controller, if the response has to wait for it (`zookeeper_change`).
    mutation_limiter: Limiter | None = None
    # Size of a long request; 0 for a short one.
    request_bytes: int = 0
    # Time in ms that the call waited until its instance had request time on this broker again.
    paused_ms: int = 0
    # Settings before and after a change, by resource, where the handler knows them exactly; None without an audit.
    setting_changes: dict[str, tuple[Mapping[str, str], Mapping[str, str]]] | None = None

    @property
    def api_key(self) -> int:
        return self.api.key

    @property
    def source(self) -> Source:
        """Returns the caller in the form of the audit log."""
        view = self.view
        return Source(view.principal.user, str(self.address), self.client_id, view.route_name)

    def record_setting_change(self, name: str, before: Mapping[str, str], after: Mapping[str, str]) -> None:
        """Records a change of settings for the audit log."""
        if self.setting_changes is not None:
            self.setting_changes[name] = (before, after)

    @property
    def rights(self) -> Rights:
        """Returns the current rights of the principal: a long call outlives its view."""
        services, view = self.services, self.view
        image = services.metadata.current.image
        if image is view.image:
            return view.rights(services.access.acl_indexes, self.address)
        return rights_in(image, services.access.acl_indexes, view.principal, self.address)

    def denial(
        self, resource_type: ResourceType, name: str = CLUSTER_NAME, operation: AclOperation | None = None
    ) -> int:
        """Returns the error code if the principal may not make this call for a resource; 0 if it may, or if the call
        requires no right to this kind of resource. `name` is the client's name of the resource. `operation` defaults to
        the one in `RequiredRights.operations`; any other must be in `RequiredRights.other_operations`.
        """
        required = self.api.rights
        if operation is None:
            operation = required.operations.get(resource_type)
            if operation is None:
                return 0
        else:
            is_in_row = (
                operation,
                resource_type,
            ) in required.other_operations or required.operations.get(resource_type) is operation
            assert is_in_row, "a call's operations are in its row"
        rights = self.rights
        if rights.is_unrestricted or rights.allows(operation, resource_type, name):
            return 0
        return DENIALS[resource_type]

    def refusal(self, topic: TopicImage | None, name: str) -> int:
        """Returns the error code if this call may not be made for a topic, else 0. `topic` is from the call's view,
        None if it does not exist; `name` is the client's name of it. The current metadata decides, since a long call
        outlives its view. Without a right the response does not disclose if the topic exists.
        """
        operation = self.api.allow_list.operation
        assert operation is not None, "a call that names topics requires an allow-list"
        if self.view.state == DELETING:
            return UNKNOWN_TOPIC_OR_PARTITION
        denied = self.denial(ResourceType.TOPIC, name)
        if denied:
            return denied
        image = self.services.metadata.current.image
        if topic is not None and image is not self.view.image:
            topic = image.topics.get(topic.name, topic)
        return decide(self.view.state, topic, operation, self.address)

    def named_topic(self, name: str) -> tuple[TopicImage | None, int]:
        """Returns the topic with the client's `name`, None if there is none, and the error code like `refusal`."""
        topic = self.view.namespace.topics.get(name.encode())
        return topic, self.refusal(topic, name)

    def authorised_operations(self, resource_type: ResourceType, name: str = CLUSTER_NAME) -> int:
        """Returns the operations on a resource that the principal may do, as bits by operation number."""
        return self.rights.operations(resource_type, name)
