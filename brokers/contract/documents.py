"""JSON documents in ZooKeeper, as frozen values with `to_json` and `from_json` (spec F.2, CKA-40).

Unknown keys are ignored and missing optional ones get defaults (ZK-3), so that processes of neighbouring versions can
run together.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any, Final, Literal

from brokers.contract.routes import DEFAULT_ROUTE, PLAINTEXT, RouteDocument
from quotas.policies import DEFAULT_POLICY

InstanceState = Literal["active", "frozen", "deleting"]
QuotaScope = Literal["cluster", "broker"]
CLUSTER_SCOPE: Final = "cluster"
BROKER_SCOPE: Final = "broker"

INTERNAL_LISTENER = "INTERNAL"
_WITH_TLS = "SSL"
_WITHOUT_TLS = "SASL_PLAINTEXT"


def _dump(document: dict[str, Any]) -> bytes:
    return json.dumps(document, separators=(",", ":"), sort_keys=True).encode()


@dataclass(frozen=True, slots=True, kw_only=True)
class BrokerDocument:
    """Document at `/brokers/ids/<id>`, ephemeral (ZK-6). The node's czxid is the broker epoch.

    With `stopping` the broker asks the controller to move its leaderships away (REP-34); it is set in the same node, so
    the epoch stays. `has_tls` is True if its internal listener uses mutual TLS (decision 106).

    `software_version` is the version of Penstock that the broker runs, and `call_versions` has the latest version of
    each of Penstock's own calls that it serves, by name (decision 164). Both are empty for earlier brokers.
    """

    host: str
    port: int
    admin_port: int
    timestamp_ms: int
    rack: str | None = None
    stopping: bool = False
    has_tls: bool = False
    software_version: str = ""
    call_versions: Mapping[str, int] = field(default_factory=dict)

    def to_json(self) -> bytes:
        endpoint = f"{INTERNAL_LISTENER}://{self.host}:{self.port}"
        body: dict[str, Any] = {
            "version": 5,
            "host": self.host,
            "port": self.port,
            "jmx_port": -1,
            "admin_port": self.admin_port,
            "timestamp": str(self.timestamp_ms),
            "endpoints": [endpoint],
            "rack": self.rack,
            "listener_security_protocol_map": {INTERNAL_LISTENER: _WITH_TLS if self.has_tls else _WITHOUT_TLS},
            "features": {
                name: {"min_version": 0, "max_version": latest} for name, latest in self.call_versions.items()
            },
        }
        if self.software_version:
            body["software_version"] = self.software_version
        if self.stopping:
            body["stopping"] = True
        return _dump(body)

    @classmethod
    def from_json(cls, raw: bytes) -> BrokerDocument:
        body = json.loads(raw)
        return cls(
            host=body["host"],
            port=body["port"],
            admin_port=body.get("admin_port", -1),
            timestamp_ms=int(body.get("timestamp", 0)),
            rack=body.get("rack"),
            stopping=bool(body.get("stopping", False)),
            has_tls=body.get("listener_security_protocol_map", {}).get(INTERNAL_LISTENER) == _WITH_TLS,
            software_version=str(body.get("software_version", "")),
            call_versions={
                str(name): int(feature["max_version"])
                for name, feature in body.get("features", {}).items()
                if isinstance(feature, dict) and isinstance(feature.get("max_version"), int)
            },
        )


# Behaviours when the bought storage is nearly or completely used up (decision 114).
STOP: Final = "stop"
SHRINK_RETENTION: Final = "shrink_retention"
RETENTION_MINUTES_MIN_DEFAULT: Final = 60


@dataclass(frozen=True, slots=True, kw_only=True)
class InstanceSettings:
    """Settings that a tenant chooses for its instance.

    A `default_replication_factor` of -1 means one replica on each of the instance's brokers, up to three. With
    `storage_when_full` "shrink_retention" the oldest records are deleted before the storage is used up, except those
    younger than `storage_retention_minutes_min`.
    """

    auto_create_topics: bool = True
    default_partitions: int = 3
    default_replication_factor: int = -1
    storage_when_full: str = STOP
    storage_retention_minutes_min: int = RETENTION_MINUTES_MIN_DEFAULT


@dataclass(frozen=True, slots=True, kw_only=True)
class InstanceDocument:
    """Document at `/ckafka/instances/<id>` (CKA-1, CKA-40), written by the reconciler and applied by every broker of
    the cluster.

    Rates are in bytes/s, the capacity is in bytes.

    Attributes:
        generation: grows with each publication; a broker repeats it in its `InstanceAck`.
        endpoints: advertised addresses `host:port` by broker id; with routes, those of the first route.
        ports: ports to bind by broker id; with routes, those that a broker without support for routes may open.
        partitions_max: limit on the partitions of all topics together, None for the broker's.
        message_bytes_max: limit on `max.message.bytes` of its topics, None for the broker's.
        leaving: brokers that serve the instance but get no further replica of its topics.
        allow_everyone_if_no_acl: a resource without an ACL is open to every user (Kafka's
            `allow.everyone.if.no.acl.found`), but the administration of the cluster needs an ACL (decision 127).
        bandwidth_policy: sharing policy of the bought bandwidth (`quotas.policies`); an unknown one counts as `static`.
        quota_scope: `cluster` if client quotas of bytes hold over all brokers together, `broker` if on each of them, as
            in Kafka.
        routes: the routes of the instance.
        tenant_id: the tenant, whose instances share its part of a broker's event loop; None in old documents.
    """

    generation: int
    produce_bps: int
    consume_bps: int
    capacity_bytes: int
    state: InstanceState = "active"
    endpoints: dict[int, str] = field(default_factory=dict)
    ports: dict[int, int] = field(default_factory=dict)
    settings: InstanceSettings = InstanceSettings()
    vpc: str | None = None
    partitions_max: int | None = None
    message_bytes_max: int | None = None
    leaving: tuple[int, ...] = ()
    allow_everyone_if_no_acl: bool = True
    routes: tuple[RouteDocument, ...] = ()
    bandwidth_policy: str = DEFAULT_POLICY
    quota_scope: QuotaScope = CLUSTER_SCOPE
    tenant_id: str | None = None

    @property
    def effective_routes(self) -> tuple[RouteDocument, ...]:
        """The routes; for a document without any, the plaintext route of its ports."""
        if self.routes:
            return self.routes
        return (RouteDocument(name=DEFAULT_ROUTE, security=PLAINTEXT, ports=self.ports, endpoints=self.endpoints),)

    @property
    def serving(self) -> frozenset[int]:
        """The brokers that serve the instance, including those in `leaving`."""
        return frozenset(self.endpoints or self.ports)

    @property
    def leased_ports(self) -> list[tuple[int, int]]:
        """Pairs of broker id and port of all routes."""
        return [pair for route in self.effective_routes for pair in route.ports.items()]

    def tenant_of(self, instance_id: str) -> str:
        """Returns the id of the tenant; an instance whose document names none is its own tenant."""
        return self.tenant_id or instance_id

    def route(self, name: str) -> RouteDocument | None:
        return next((route for route in self.effective_routes if route.name == name), None)

    def to_json(self) -> bytes:
        body: dict[str, Any] = {
            "version": 1,
            "generation": self.generation,
            "vpc": self.vpc,
            "produce_bps": self.produce_bps,
            "consume_bps": self.consume_bps,
            "capacity": self.capacity_bytes,
            "state": self.state,
            "endpoints": {str(broker): address for broker, address in self.endpoints.items()},
            "ports": {str(broker): port for broker, port in self.ports.items()},
            "settings": asdict(self.settings),
            "partitions_max": self.partitions_max,
            "message_bytes_max": self.message_bytes_max,
            "allow_everyone_if_no_acl": self.allow_everyone_if_no_acl,
            "bandwidth_policy": self.bandwidth_policy,
            "quota_scope": self.quota_scope,
        }
        if self.tenant_id is not None:
            body["tenant_id"] = self.tenant_id
        if self.leaving:
            body["leaving"] = list(self.leaving)
        if self.routes:
            body["routes"] = [route.to_body() for route in self.routes]
        return _dump(body)

    @classmethod
    def from_json(cls, raw: bytes) -> InstanceDocument:
        body = json.loads(raw)
        known_settings = InstanceSettings.__dataclass_fields__
        return cls(
            generation=body.get("generation", 0),
            produce_bps=body["produce_bps"],
            consume_bps=body["consume_bps"],
            capacity_bytes=body["capacity"],
            state=body.get("state", "active"),
            endpoints={int(broker): address for broker, address in body.get("endpoints", {}).items()},
            ports={int(broker): port for broker, port in body.get("ports", {}).items()},
            settings=InstanceSettings(
                **{name: value for name, value in body.get("settings", {}).items() if name in known_settings}
            ),
            vpc=body.get("vpc"),
            partitions_max=body.get("partitions_max"),
            message_bytes_max=body.get("message_bytes_max"),
            leaving=tuple(body.get("leaving", ())),
            allow_everyone_if_no_acl=bool(body.get("allow_everyone_if_no_acl", True)),
            routes=tuple(map(RouteDocument.from_body, body.get("routes", ()))),
            bandwidth_policy=str(body.get("bandwidth_policy", DEFAULT_POLICY)),
            quota_scope=BROKER_SCOPE if body.get("quota_scope") == BROKER_SCOPE else CLUSTER_SCOPE,
            tenant_id=body.get("tenant_id"),
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class InstanceAck:
    """Document at `/ckafka/acks/<id>/<broker>`, ephemeral: the broker has applied `generation`.

    `error` is the reason why the ports of the routes in `not_open` are not open; `unable` the reason why a route cannot
    be opened on any port.
    """

    generation: int
    port: int
    listening: bool
    error: str | None = None
    not_open: tuple[str, ...] = ()
    unable: str | None = None

    def to_json(self) -> bytes:
        return _dump({"version": 1, **asdict(self)})

    @classmethod
    def from_json(cls, raw: bytes) -> InstanceAck:
        body = json.loads(raw)
        return cls(
            generation=body["generation"],
            port=body["port"],
            listening=body["listening"],
            error=body.get("error"),
            not_open=tuple(body.get("not_open", ())),
            unable=body.get("unable"),
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class InstanceTopicDocument:
    """Document at `/ckafka/instances/<id>/topics/<internal>`: the tenant's name and the allow-lists (CKA-11, CKA-15).

    Allow-lists have addresses or CIDRs. An empty list admits all addresses; an empty `administer_ips` those that both
    other lists admit. `deleted_topic_id` is the id (as in `TopicDocument`) of a topic that its owner has deleted and
    may restore: it is hidden from the clients of the instance. A topic of the same name with another id is not.
    """

    name: str
    produce_ips: tuple[str, ...] = ()
    consume_ips: tuple[str, ...] = ()
    administer_ips: tuple[str, ...] = ()
    deleted_topic_id: str = ""

    @property
    def has_content(self) -> bool:
        """False if the document has only a name, which means the same as no document."""
        return bool(self.produce_ips or self.consume_ips or self.administer_ips or self.deleted_topic_id)

    def to_json(self) -> bytes:
        body: dict[str, Any] = {
            "version": 1,
            "name": self.name,
            "produce_ips": list(self.produce_ips),
            "consume_ips": list(self.consume_ips),
            "administer_ips": list(self.administer_ips),
        }
        if self.deleted_topic_id:
            body["deleted_topic_id"] = self.deleted_topic_id
        return _dump(body)

    @classmethod
    def from_json(cls, raw: bytes) -> InstanceTopicDocument:
        body = json.loads(raw)
        return cls(
            name=body["name"],
            produce_ips=tuple(body.get("produce_ips", ())),
            consume_ips=tuple(body.get("consume_ips", ())),
            administer_ips=tuple(body.get("administer_ips", ())),
            deleted_topic_id=str(body.get("deleted_topic_id", "")),
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class TopicDocument:
    """Document at `/brokers/topics/<t>` (ZK-10): replica ids by partition index; `topic_id` is base64url without
    padding.

    During a reassignment (REP-32) the replicas of a partition are the target ones followed by those that will be
    removed. `adding` and `removing` have these two differences, for reassigned partitions only. `identified` is True if
    the node of the topic's id exists (`paths.topic_identity`).
    """

    topic_id: str
    assignment: dict[int, tuple[int, ...]]
    adding: dict[int, tuple[int, ...]] = field(default_factory=dict)
    removing: dict[int, tuple[int, ...]] = field(default_factory=dict)
    identified: bool = False

    def to_json(self) -> bytes:
        body: dict[str, Any] = {
            "version": 3,
            "topic_id": self.topic_id,
            "partitions": _lists_by_index(self.assignment),
            "adding_replicas": _lists_by_index(self.adding),
            "removing_replicas": _lists_by_index(self.removing),
        }
        if self.identified:
            body["identified"] = True
        return _dump(body)

    @classmethod
    def from_json(cls, raw: bytes) -> TopicDocument:
        body = json.loads(raw)
        return cls(
            topic_id=body.get("topic_id", ""),
            assignment=_tuples_by_index(body["partitions"]),
            adding=_tuples_by_index(body.get("adding_replicas") or {}),
            removing=_tuples_by_index(body.get("removing_replicas") or {}),
            identified=bool(body.get("identified")),
        )


def _lists_by_index(replicas_by_index: dict[int, tuple[int, ...]]) -> dict[str, list[int]]:
    return {str(index): list(replicas) for index, replicas in replicas_by_index.items()}


def _tuples_by_index(body: dict[str, list[int]]) -> dict[int, tuple[int, ...]]:
    return {int(index): tuple(replicas) for index, replicas in body.items()}


@dataclass(frozen=True, slots=True, kw_only=True)
class PartitionStateDocument:
    """Document at `/brokers/topics/<t>/partitions/<p>/state` (ZK-12); leader -1 means none.

    `isr_broker_epochs`, if present, has for each member of `isr` the broker epoch in which it was in sync, -1 if the
    writer did not know it. A member with another epoch must catch up before it counts as in sync.
    """

    leader: int
    leader_epoch: int
    controller_epoch: int
    isr: tuple[int, ...]
    isr_broker_epochs: tuple[int, ...] = ()

    def to_json(self) -> bytes:
        body: dict[str, Any] = {
            "version": 1,
            "leader": self.leader,
            "leader_epoch": self.leader_epoch,
            "controller_epoch": self.controller_epoch,
            "isr": list(self.isr),
        }
        if self.isr_broker_epochs:
            body["isr_broker_epochs"] = list(self.isr_broker_epochs)
        return _dump(body)

    @classmethod
    def from_json(cls, raw: bytes) -> PartitionStateDocument:
        body = json.loads(raw)
        return cls(
            leader=body["leader"],
            leader_epoch=body["leader_epoch"],
            controller_epoch=body["controller_epoch"],
            isr=tuple(body["isr"]),
            isr_broker_epochs=tuple(body.get("isr_broker_epochs") or ()),
        )


def config_to_json(config: dict[str, str]) -> bytes:
    """Encodes the document of an entity below `/config`; its values are strings (ZK-13, QUO-70)."""
    return _dump({"version": 1, "config": config})


def config_from_json(raw: bytes) -> dict[str, str]:
    return dict(json.loads(raw).get("config", {}))


def config_change_to_json(entity_path: str) -> bytes:
    """Encodes `/config/changes/config_change_<seq>` (ZK-15), e.g. of `users/alice/clients/c1` or `topics/t`."""
    return _dump({"version": 2, "entity_path": entity_path})


def change_to_json(paths: list[str], states: Mapping[str, Sequence[int]] | None = None) -> bytes:
    """Encodes `/ckafka/changes/change_<seq>`: the changed `topics/<internal>`, `instances/<id>` and `brokers/<id>`,
    which readers must read again (ZK-32).

    For a topic in `states`, only the states of these partitions have changed.
    """
    return _dump({"version": 1, "paths": paths} | ({"states": states} if states else {}))


def change_from_json(raw: bytes) -> list[str]:
    """Returns the changed paths.

    A topic whose changed states are known appears as `topics/<internal>/` for its documents and as
    `topics/<internal>/<index>` for each state.
    """
    body = json.loads(raw)
    states = body.get("states", {})
    result: list[str] = []
    for path in body["paths"] if "paths" in body else [body["path"]]:
        result += [f"{path}/", *(f"{path}/{index:d}" for index in states[path])] if path in states else [path]
    return result


def config_change_from_json(raw: bytes) -> str:
    """Returns the entity path of a configuration change in version 2, or in version 1 with type and name (ZK-15)."""
    body = json.loads(raw)
    return body["entity_path"] if "entity_path" in body else f"{body['entity_type']}/{body['entity_name']}"


def controller_to_json(broker_id: int, timestamp_ms: int) -> bytes:
    """Encodes the document at `/controller`, ephemeral (ZK-8)."""
    return _dump({"version": 2, "brokerid": broker_id, "timestamp": str(timestamp_ms), "kraftControllerEpoch": -1})


def controller_from_json(raw: bytes) -> int:
    """Returns the id of the broker that is controller."""
    return int(json.loads(raw)["brokerid"])


def flow_master_to_json(broker_id: int, timestamp_ms: int) -> bytes:
    """Encodes the document at `/ckafka/master`, ephemeral (CKA-40)."""
    return _dump({"version": 1, "brokerid": broker_id, "timestamp": str(timestamp_ms)})


def flow_master_from_json(raw: bytes) -> int:
    """Returns the id of the broker that is flow master."""
    return int(json.loads(raw)["brokerid"])
