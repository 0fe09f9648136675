"""ZooKeeper paths of the product, relative to the cluster's chroot `/penstock/<cluster id>` (spec F.2, CKA-40)."""

from __future__ import annotations

from urllib.parse import quote, unquote

CLUSTER_ID = "/cluster/id"
BROKER_IDS = "/brokers/ids"
BROKER_SEQID = "/brokers/seqid"
TOPICS = "/brokers/topics"
CONTROLLER = "/controller"
CONTROLLER_EPOCH = "/controller_epoch"
CONFIG_CHANGES = "/config/changes"
DELETE_TOPICS = "/admin/delete_topics"
PRODUCER_ID_BLOCK = "/latest_producer_id_block"
CONSUMERS = "/consumers"
BROKER_CONFIGS = "/config/brokers"
INSTANCES = "/ckafka/instances"
INSTANCE_ACKS = "/ckafka/acks"
INSTANCE_PORTS = "/ckafka/ports"
CREATIONS = "/ckafka/creations"
KEY_REQUESTS = "/ckafka/key_requests"
# A `revoked_certificates.RevokedCertificates`, which the control plane writes.
REVOKED_CERTIFICATES = "/ckafka/revoked_certificates"
FLOW_MASTER = "/ckafka/master"
FLOW_MASTER_EPOCH = "/ckafka/master_epoch"
CHANGES = "/ckafka/changes"
CHANGE_PREFIX = f"{CHANGES}/change_"
CONFIG_CHANGE_PREFIX = f"{CONFIG_CHANGES}/config_change_"

DEFAULT_ENTITY = "<default>"

# Nodes that exist before the first broker serves (ZK-2).
PERSISTENT_AT_START = (
    CONSUMERS,
    BROKER_IDS,
    TOPICS,
    CONFIG_CHANGES,
    DELETE_TOPICS,
    BROKER_SEQID,
    "/isr_change_notification",
    "/log_dir_event_notification",
    "/config/topics",
    "/config/clients",
    "/config/users",
    BROKER_CONFIGS,
    "/config/ips",
    INSTANCES,
    INSTANCE_ACKS,
    INSTANCE_PORTS,
    CREATIONS,
    KEY_REQUESTS,
    CHANGES,
)


def chroot(cluster_id: str) -> str:
    """Returns the root of a cluster's tree in a shared ZooKeeper ensemble (CKA-46)."""
    return f"/penstock/{cluster_id}"


def broker(broker_id: int) -> str:
    return f"{BROKER_IDS}/{broker_id}"


def topic(internal_name: str) -> str:
    return f"{TOPICS}/{internal_name}"


def topic_identity(internal_name: str, topic_id: str) -> str:
    """Returns the node that exists as long as the topic with this id.

    Writes check it, because node versions alone cannot distinguish a recreated topic of the same name.
    """
    return f"{TOPICS}/{internal_name}/id_{topic_id}"


def partitions(internal_name: str) -> str:
    return f"{TOPICS}/{internal_name}/partitions"


def partition(internal_name: str, index: int) -> str:
    return f"{TOPICS}/{internal_name}/partitions/{index}"


def partition_state(internal_name: str, index: int) -> str:
    return f"{TOPICS}/{internal_name}/partitions/{index}/state"


def topic_config(internal_name: str) -> str:
    return f"/config/topics/{internal_name}"


def broker_config_entity(broker_id: int | None) -> str:
    """Returns the path below `/config` of the configuration of one broker, or of all brokers with None (ZK-13)."""
    return f"brokers/{DEFAULT_ENTITY if broker_id is None else broker_id}"


def broker_config(broker_id: int | None) -> str:
    return f"/config/{broker_config_entity(broker_id)}"


def topic_deletion(internal_name: str) -> str:
    return f"{DELETE_TOPICS}/{internal_name}"


def instance(instance_id: str) -> str:
    return f"{INSTANCES}/{instance_id}"


def instance_topics(instance_id: str) -> str:
    return f"{INSTANCES}/{instance_id}/topics"


def instance_topic(instance_id: str, internal_name: str) -> str:
    """Returns the path of a topic's document with the tenant's name and the allow-lists (CKA-11)."""
    return f"{INSTANCES}/{instance_id}/topics/{internal_name}"


def instance_users(instance_id: str) -> str:
    return f"{INSTANCES}/{instance_id}/users"


def instance_user(instance_id: str, node_name: str) -> str:
    """Returns the path of a `users.UserDocument`; `node_name` is the user's sanitised name."""
    return f"{INSTANCES}/{instance_id}/users/{node_name}"


def instance_acls(instance_id: str) -> str:
    return f"{INSTANCES}/{instance_id}/acls"


def instance_acl(instance_id: str, node_name: str) -> str:
    """Returns the path of an `acls.AclDocument`; `node_name` is that of its `acls.ResourcePattern`."""
    return f"{INSTANCES}/{instance_id}/acls/{node_name}"


def instance_certificates(instance_id: str) -> str:
    return f"{INSTANCES}/{instance_id}/certificates"


def instance_route_certificates(instance_id: str, route_name: str) -> str:
    """Returns the path of a route's `certificates.CertificatesDocument`."""
    return f"{INSTANCES}/{instance_id}/certificates/{route_name}"


def instance_oauth(instance_id: str) -> str:
    return f"{INSTANCES}/{instance_id}/oauth"


def instance_oauth_node(instance_id: str, node_name: str) -> str:
    """Returns the path of an `oauth.OAuthDocument`, which the control plane writes."""
    return f"{INSTANCES}/{instance_id}/oauth/{node_name}"


def key_request(instance_id: str) -> str:
    """Returns the node that a broker creates to request that an instance's key set is fetched again."""
    return f"{KEY_REQUESTS}/{instance_id}"


def instance_creations(instance_id: str) -> str:
    """Returns the node that is written with each creation of an instance's partitions.

    Its version prevents two brokers from allocating the same remaining partitions of the plan.
    """
    return f"{CREATIONS}/{instance_id}"


def instance_ack(instance_id: str, broker_id: int) -> str:
    """Returns the path of a broker's `documents.InstanceAck`, which is ephemeral."""
    return f"{INSTANCE_ACKS}/{instance_id}/{broker_id}"


def instance_acks(instance_id: str) -> str:
    return f"{INSTANCE_ACKS}/{instance_id}"


def instance_port(broker_id: int, port: int) -> str:
    return f"{INSTANCE_PORTS}/{broker_id}/{port}"


def sanitise(name: str) -> str:
    """Returns a name encoded as the name of a node: everything but `A-Z a-z 0-9 - _ .` is percent-encoded (QUO-6).

    The names `.` and `..`, which ZooKeeper does not allow, are encoded as well.
    """
    return name.replace(".", "%2E") if name in (".", "..") else sanitised_part(name)


def sanitised_part(name: str) -> str:
    """Returns a name encoded as part of a node's name, so that a user named `<default>` is not the default (QUO-6)."""
    return quote(name, safe="-_.").replace("~", "%7E")


def desanitise(name: str) -> str:
    return unquote(name)


def quota_entity(instance_id: str, user: str | None, client_id: str | None, *, has_user: bool, has_client: bool) -> str:
    """Returns the entity path below `/config` of an instance's client quota, e.g.
    `users/ins-7k2m9qxa.alice/clients/ins-7k2m9qxa.etl`.

    `None` means the instance's default. All names, also the default, have the instance's prefix (CKA-13), so that two
    instances never share a limit or a counter. The default cannot be spoofed, because encoded names have no `<`.

    Raises:
        ValueError: the entity has neither a user nor a client id.
    """

    def scoped(name: str | None) -> str:
        return f"{instance_id}.{DEFAULT_ENTITY if name is None else sanitised_part(name)}"

    if has_user and has_client:
        return f"users/{scoped(user)}/clients/{scoped(client_id)}"
    if has_user:
        return f"users/{scoped(user)}"
    if has_client:
        return f"clients/{scoped(client_id)}"
    raise ValueError("a quota entity names a user, a client id, or both")


def ip_quota_entity(instance_id: str, address: str | None) -> str:
    """Returns the entity path of a limit for one address of an instance's clients, None for the default."""
    return f"ips/{instance_id}.{DEFAULT_ENTITY if address is None else sanitised_part(address)}"


def ip_quota_entity_parts(entity_path: str) -> tuple[str, str | None]:
    """Parses an `ip_quota_entity` into `(instance id, address or None)`.

    Raises:
        ValueError: the path is not that of a limit for addresses.
    """
    kind, _, node = entity_path.partition("/")
    owner, dot, name = node.partition(".")
    if kind != "ips" or "/" in node or not owner or not dot or not name:
        raise ValueError(f"not a quota entity: {entity_path!r}")
    return owner, None if name == DEFAULT_ENTITY else desanitise(name)


def quota_entity_parts(entity_path: str) -> tuple[str, tuple[str | None, ...] | None, tuple[str | None, ...] | None]:
    """Parses a `quota_entity` into `(instance id, user, client id)`.

    User and client id are None if they are absent, else a 1-tuple of the tenant's name, or of None for the default.

    Raises:
        ValueError: the path is not that of an instance's client quota.
    """
    kinds, names = entity_path.split("/")[0::2], entity_path.split("/")[1::2]
    if len(kinds) != len(names) or kinds not in (["users"], ["clients"], ["users", "clients"]):
        raise ValueError(f"not a quota entity: {entity_path!r}")
    parts: dict[str, tuple[str | None, ...]] = {}
    owners = set()
    for kind, node in zip(kinds, names, strict=True):
        owner, dot, name = node.partition(".")
        if not owner or not dot or not name:
            raise ValueError(f"not a quota entity: {entity_path!r}")
        owners.add(owner)
        parts[kind] = (None if name == DEFAULT_ENTITY else desanitise(name),)
    if len(owners) != 1:
        raise ValueError(f"a quota entity belongs to one instance: {entity_path!r}")
    return owners.pop(), parts.get("users"), parts.get("clients")
