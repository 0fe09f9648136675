"""Kind of each text, id and blob in the messages that tenants are served (`isolation`)."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, Final, NamedTuple

from brokers.engine.protocol.apis import ApiKey
from brokers.engine.protocol.fields import FieldSpec, fields_of, message_class

K = ApiKey
NAMING_KINDS: Final = ("text", "uuid", "blob", "records")

TOPIC: Final = "topic"
TOPIC_ID: Final = "topic id"
GROUP: Final = "group"
TRANSACTION: Final = "transactional id"
QUOTA: Final = "quota entity"
USER: Final = "user"
ACL: Final = "access control entry"
PROOF: Final = "proof"
BROKER: Final = "broker"
OPAQUE: Final = "opaque"
MEMBER: Final = "member"
SETTING: Final = "setting"
WORD: Final = "word"

KINDS: Final[Mapping[str, tuple[str, str]]] = {
    TOPIC: (
        "mapped",
        "Looked up among the instance's own topics, by its name without the instance's id; shown the same way. A "
        "foreign name and one that does not exist are the same miss.",
    ),
    TOPIC_ID: ("mapped", "Ids are the cluster's; one of another instance is answered as one that does not exist."),
    GROUP: ("mapped", "Stored under the instance's id, and shown without it; only ids of the instance are listed."),
    TRANSACTION: ("mapped", "Stored under the instance's id, and shown without it."),
    QUOTA: ("mapped", "Users, client ids, addresses are the instance's own; stored under its id, shown without it."),
    USER: (
        "mapped",
        "Users are the instance's own: documents below its node, looked up there alone. A token proves one by the "
        "issuer, audience and keys that the instance names itself.",
    ),
    ACL: (
        "mapped",
        "Entries are the instance's own, under the names of its owner; stored at its node, and compared with its own "
        "names and users alone.",
    ),
    PROOF: (
        "mapped",
        "Names a user and proves to be it: looked up among the users of the port's instance alone. Who is there is not "
        "told: salts and answers are the same for nobody.",
    ),
    BROKER: (
        "mapped",
        "Brokers that serve the instance, by its own addresses; the cluster id is made of the instance's id. Racks are "
        "the zones of these brokers; log directories have no names for tenants.",
    ),
    OPAQUE: ("harmless", "Bytes that clients write for clients of the same instance; stored, never looked up."),
    MEMBER: ("harmless", "Compared with members of the group that is named beside it, which is the instance's own."),
    SETTING: ("harmless", "A name or value that is the same for all instances, or of the topic named beside it."),
    WORD: ("harmless", "One of the protocol's or broker's own words, or a filter for them."),
}

# Of the handshake of a route with client certificates (tests/unit/brokers/engine/network/test_client_certificates.py).
HANDSHAKE: Final[Mapping[str, tuple[str, str]]] = {
    "certificate": (
        "mapped",
        "Verified by the authorities of the route alone: one of another instance, or of an authority of the same "
        "name, is refused. Its revocation goes by the key that signed it.",
    ),
    "user by certificate": (
        "mapped",
        "Its subject through the route's own rules: a user of the port's instance, whatever it is called.",
    ),
    "TLS session": ("mapped", "Tickets are of one route and of what it trusts now; elsewhere they are worth nothing."),
}

# By field, or by (API, field) where a name means something else there.
FIELDS: Final[Mapping[str | tuple[ApiKey, str], str]] = {
    **dict.fromkeys(("name", "topic", "topic_names", "resource_name"), TOPIC),
    "topic_id": TOPIC_ID,
    **dict.fromkeys(("group_id", "groups", "groups_names"), GROUP),
    **dict.fromkeys(("transactional_id", "transactional_ids", "v3_and_below_transactional_id"), TRANSACTION),
    **dict.fromkeys(("key", "coordinator_keys"), f"{GROUP} or {TRANSACTION}"),
    **dict.fromkeys(("cluster_id", "host", "rack", "rack_id", "log_dir", "replica_directory_id"), BROKER),
    **dict.fromkeys(
        ("records", "assignment", "member_assignment", "member_metadata", "metadata", "committed_metadata", "reason"),
        OPAQUE,
    ),
    **dict.fromkeys(("member_id", "group_instance_id", "leader", "client_id", "client_host"), MEMBER),
    **dict.fromkeys(("protocol_name", "protocol_type", "protocol_data"), OPAQUE),
    **dict.fromkeys(("value", "configuration_keys", "documentation"), SETTING),
    **dict.fromkeys(("client_software_name", "client_software_version"), WORD),
    **dict.fromkeys(("group_state", "group_type", "state_filters", "states_filter", "types_filter"), WORD),
    **dict.fromkeys(("transaction_state", "unknown_state_filters", "error_message", "batch_index_error_message"), WORD),
    **dict.fromkeys(("entity_type",), WORD),
    **dict.fromkeys(("entity_name", "match"), QUOTA),
    **dict.fromkeys(
        ("principal", "principal_filter", "resource_name_filter", "host_filter"),
        ACL,
    ),
    **dict.fromkeys(((K.DESCRIBE_ACLS, "resource_name"), (K.CREATE_ACLS, "resource_name")), ACL),
    **dict.fromkeys(((K.DELETE_ACLS, "resource_name"), (K.DESCRIBE_ACLS, "host")), ACL),
    **dict.fromkeys(((K.CREATE_ACLS, "host"), (K.DELETE_ACLS, "host")), ACL),
    (K.DESCRIBE_CLIENT_QUOTAS, "values.key"): SETTING,
    (K.ALTER_CLIENT_QUOTAS, "ops.key"): SETTING,
    (K.DESCRIBE_USER_SCRAM_CREDENTIALS, "users.name"): USER,
    (K.ALTER_USER_SCRAM_CREDENTIALS, "deletions.name"): USER,
    (K.ALTER_USER_SCRAM_CREDENTIALS, "upsertions.name"): USER,
    "user": USER,
    "auth_bytes": PROOF,
    **dict.fromkeys(("mechanism", "mechanisms"), WORD),
    **dict.fromkeys(("salt", "salted_password"), OPAQUE),
    (K.API_VERSIONS, "name"): WORD,
    (K.JOIN_GROUP, "protocols.name"): OPAQUE,
    (K.ALTER_CONFIGS, "configs.name"): SETTING,
    (K.INCREMENTAL_ALTER_CONFIGS, "configs.name"): SETTING,
    (K.DESCRIBE_CONFIGS, "configs.name"): SETTING,
    (K.DESCRIBE_CONFIGS, "synonyms.name"): SETTING,
    (K.CREATE_TOPICS, "configs.name"): SETTING,
}


class NamedField(NamedTuple):
    """A text, id or blob of a message: the names that lead to it, and in which versions it is."""

    path: tuple[str, ...]
    versions: tuple[int, int]


def named_fields(cls: type[Any], versions: tuple[int, int], path: tuple[str, ...] = ()) -> Iterator[NamedField]:
    """Those of a message class within `versions`."""
    for name, spec, _default in fields_of(cls):
        within = max(versions[0], spec.since), min(versions[1], spec.until)
        if within[0] > within[1]:
            continue
        inner: FieldSpec = spec
        while inner.kind == "array":
            inner = inner.inner
        if inner.kind == "nested":
            yield from named_fields(inner.inner, within, (*path, name))
        elif inner.kind in NAMING_KINDS:
            yield NamedField((*path, name), within)


def kind_of(api_key: ApiKey, field: NamedField) -> str:
    """Returns the kind of a field. Raises KeyError for an unclassified one."""
    name = field.path[-1]
    for key in ((api_key, ".".join(field.path[-2:])), (api_key, name)):
        if key in FIELDS:
            return FIELDS[key]
    return FIELDS[name]


def kinds_of(api_key: ApiKey, versions: tuple[int, int]) -> dict[str, list[str]]:
    """Returns the fields of requests and responses in these versions by kind."""
    result: dict[str, list[str]] = {}
    for direction in ("request", "response"):
        for field in named_fields(message_class(api_key, direction), versions):
            for kind in kind_of(api_key, field).split(" or "):
                names = result.setdefault(kind, [])
                if field.path[-1] not in names:
                    names.append(field.path[-1])
    return result
