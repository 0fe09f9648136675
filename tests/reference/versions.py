"""Versions of what processes of different releases exchange or keep, each from the module that has it, for
docs/reference/versions.md.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Final, NamedTuple

from billing.invoices import snapshot
from billing.lake import files as lake_files
from brokers.auditing import source as audit_source
from brokers.contract import audit, documents, usage, usage_columns
from brokers.contract.acls import AclDocument, PatternType, ResourcePattern, ResourceType
from brokers.contract.certificates import CertificatesDocument
from brokers.contract.oauth import OAuthDocument
from brokers.contract.revoked_certificates import RevokedCertificates
from brokers.contract.users import UserDocument
from brokers.dataplane import (
    acls,
    client_quotas,
    cluster,
    coordinators,
    groups,
    message_sender,
    message_source,
    offsets,
    probe,
    record_deletion,
    topics,
    transactions,
    user_messages,
)
from brokers.dataplane import link as control_link
from brokers.engine.assembly import transactions as verification
from brokers.engine.coordinators.groups import formats as group_formats
from brokers.engine.coordinators.transactions import formats as transaction_formats
from brokers.engine.protocol.apis import ADVERTISED_INTERNAL, OWN_CALL_VERSIONS, ApiKey
from brokers.engine.protocol.fast_codec_replica_fetch import VERSION as REPLICA_FETCH_VERSION
from brokers.engine.replication import link, marker_link, offsets_query
from brokers.engine.storage import checkpoints, indexes, producer_state
from config.backup import manifest

BROKER: Final = "brokers"
CONTROL: Final = "control plane"
_K = ApiKey


class Call(NamedTuple):
    """A Kafka call that a process sends to brokers in one version."""

    sender: str
    key: ApiKey
    version: int

    @property
    def served(self) -> tuple[int, int]:
        """Versions that the internal listener serves."""
        return ADVERTISED_INTERNAL[self.key]


CALLS: Final[Sequence[Call]] = (
    Call(BROKER, _K.FETCH, REPLICA_FETCH_VERSION),
    Call(BROKER, _K.LIST_OFFSETS, offsets_query.VERSION),
    Call(BROKER, _K.WRITE_TXN_MARKERS, marker_link.VERSION),
    Call(BROKER, _K.ADD_PARTITIONS_TO_TXN, verification.VERIFY_VERSION),
    *(Call(BROKER, key, version) for key, version in link.AUTHENTICATION_REQUESTS),
    Call(CONTROL, _K.SASL_HANDSHAKE, control_link.SASL_HANDSHAKE_VERSION),
    Call(CONTROL, _K.SASL_AUTHENTICATE, control_link.SASL_AUTHENTICATE_VERSION),
    Call(CONTROL, _K.METADATA, topics.METADATA_VERSION),
    Call(CONTROL, _K.CREATE_TOPICS, topics.CREATE_TOPICS_VERSION),
    Call(CONTROL, _K.DELETE_TOPICS, topics.DELETE_TOPICS_VERSION),
    Call(CONTROL, _K.CREATE_PARTITIONS, topics.CREATE_PARTITIONS_VERSION),
    Call(CONTROL, _K.DESCRIBE_CONFIGS, topics.DESCRIBE_CONFIGS_VERSION),
    Call(CONTROL, _K.INCREMENTAL_ALTER_CONFIGS, topics.ALTER_CONFIGS_VERSION),
    Call(CONTROL, _K.DELETE_RECORDS, record_deletion.DELETE_RECORDS_VERSION),
    Call(CONTROL, _K.FIND_COORDINATOR, coordinators.FIND_COORDINATOR_VERSION),
    Call(CONTROL, _K.LIST_GROUPS, groups.LIST_GROUPS_VERSION),
    Call(CONTROL, _K.DESCRIBE_GROUPS, groups.DESCRIBE_GROUPS_VERSION),
    Call(CONTROL, _K.DELETE_GROUPS, groups.DELETE_GROUPS_VERSION),
    Call(CONTROL, _K.OFFSET_FETCH, offsets.OFFSET_FETCH_VERSION),
    Call(CONTROL, _K.OFFSET_COMMIT, offsets.OFFSET_COMMIT_VERSION),
    Call(CONTROL, _K.OFFSET_DELETE, offsets.OFFSET_DELETE_VERSION),
    Call(CONTROL, _K.LIST_OFFSETS, offsets.LIST_OFFSETS_VERSION),
    Call(CONTROL, _K.LIST_TRANSACTIONS, transactions.LIST_TRANSACTIONS_VERSION),
    Call(CONTROL, _K.DESCRIBE_TRANSACTIONS, transactions.DESCRIBE_TRANSACTIONS_VERSION),
    Call(CONTROL, _K.DESCRIBE_PRODUCERS, transactions.DESCRIBE_PRODUCERS_VERSION),
    Call(CONTROL, _K.WRITE_TXN_MARKERS, transactions.WRITE_TXN_MARKERS_VERSION),
    Call(CONTROL, _K.INIT_PRODUCER_ID, transactions.INIT_PRODUCER_ID_VERSION),
    Call(CONTROL, _K.DESCRIBE_ACLS, acls.VERSION),
    Call(CONTROL, _K.CREATE_ACLS, acls.VERSION),
    Call(CONTROL, _K.DELETE_ACLS, acls.VERSION),
    Call(CONTROL, _K.DESCRIBE_CLIENT_QUOTAS, client_quotas.DESCRIBE_VERSION),
    Call(CONTROL, _K.ALTER_CLIENT_QUOTAS, client_quotas.ALTER_VERSION),
    Call(CONTROL, _K.ALTER_PARTITION_REASSIGNMENTS, cluster.ALTER_REASSIGNMENTS_VERSION),
    Call(CONTROL, _K.LIST_PARTITION_REASSIGNMENTS, cluster.LIST_REASSIGNMENTS_VERSION),
    Call(CONTROL, _K.ELECT_LEADERS, cluster.ELECT_LEADERS_VERSION),
    Call(CONTROL, _K.DESCRIBE_LOG_DIRS, cluster.DESCRIBE_LOG_DIRS_VERSION),
    Call(CONTROL, _K.PRODUCE, message_sender.PRODUCE_VERSION),
    Call(CONTROL, _K.PRODUCE, probe.PRODUCE_VERSION),
    Call(CONTROL, _K.FETCH, message_source.FETCH_VERSION),
    Call(CONTROL, _K.FETCH, probe.FETCH_VERSION),
    Call(CONTROL, _K.FETCH, audit_source.FETCH_VERSION),
    Call(CONTROL, _K.DESCRIBE_USERS, user_messages.VERSION),
    Call(CONTROL, _K.ALTER_USERS, user_messages.VERSION),
)


def call_rows() -> Iterator[list[str]]:
    for name in dict.fromkeys(call.key.name for call in sorted(CALLS, key=lambda call: call.key)):
        calls = [call for call in CALLS if call.key.name == name]
        low, high = calls[0].served
        sent = (
            ", ".join(map(str, sorted({call.version for call in calls if call.sender == sender})))
            for sender in (BROKER, CONTROL)
        )
        yield [f"`{name}`", *sent, f"{low} to {high}"]


def own_call_rows() -> Iterator[list[str]]:
    for name, latest in OWN_CALL_VERSIONS.items():
        yield [f"`{name}`", f"0 to {latest}"]


def _version_of(raw: bytes) -> str:
    return str(json.loads(raw)["version"])


def document_rows() -> Iterator[list[str]]:
    """Yields each document with the version that is written now, read from one that was made."""
    pattern = ResourcePattern(ResourceType.TOPIC, "t", PatternType.LITERAL)
    state = documents.PartitionStateDocument(leader=1, leader_epoch=0, controller_epoch=0, isr=(1,))
    broker = documents.BrokerDocument(host="h", port=1, admin_port=1, timestamp_ms=0)
    instance = documents.InstanceDocument(generation=1, produce_bps=1, consume_bps=1, capacity_bytes=1)
    ack = documents.InstanceAck(generation=1, port=1, listening=True)
    made: dict[str, bytes] = {
        "/brokers/ids/BROKER": broker.to_json(),
        "/controller": documents.controller_to_json(1, 0),
        "/brokers/topics/TOPIC": documents.TopicDocument(topic_id="", assignment={}).to_json(),
        "/brokers/topics/TOPIC/partitions/PARTITION/state": state.to_json(),
        "/config/…": documents.config_to_json({}),
        "/config/changes/…": documents.config_change_to_json("topics/t"),
        "/ckafka/master": documents.flow_master_to_json(1, 0),
        "/ckafka/revoked_certificates": RevokedCertificates().to_json(),
        "/ckafka/changes/…": documents.change_to_json([]),
        "/ckafka/instances/INSTANCE": instance.to_json(),
        "/ckafka/acks/INSTANCE/BROKER": ack.to_json(),
        "/ckafka/instances/INSTANCE/topics/TOPIC": documents.InstanceTopicDocument(name="t").to_json(),
        "/ckafka/instances/INSTANCE/users/USER": UserDocument(name="u", created_at_ms=0).to_json(),
        "/ckafka/instances/INSTANCE/acls/PATTERN": AclDocument(pattern=pattern, entries=frozenset()).to_json(),
        "/ckafka/instances/INSTANCE/oauth/configuration": OAuthDocument(issuer="i", audience="a").to_json(),
        "/ckafka/instances/INSTANCE/certificates/ROUTE": CertificatesDocument().to_json(),
    }
    for path, raw in made.items():
        yield [f"`{path}`", _version_of(raw)]


def record_rows() -> Iterator[list[str]]:
    both = f"{usage.VERSION}, {usage_columns.VERSION}"
    yield ["usage record", "`__usage`", both, f"`{usage.RECORD_VERSION_SETTING}`, which agents set to the latest"]
    yield ["audit event", "`__audit`", str(audit.VERSION), ""]
    yield ["committed offset", "`__consumer_offsets`", str(group_formats.OFFSET_VALUE_VERSION), "Apache Kafka's"]
    yield ["group", "`__consumer_offsets`", str(group_formats.GROUP_VALUE_VERSION), "Apache Kafka's"]
    yield ["transaction", "`__transaction_state`", str(transaction_formats.VALUE_VERSION), "Apache Kafka's"]


def file_rows() -> Iterator[list[str]]:
    yield ["checkpoints of a log directory", checkpoints.VERSION, "Apache Kafka's"]
    yield ["snapshot of producers", str(producer_state.SNAPSHOT_VERSION), "Apache Kafka's"]
    yield ["index of aborted transactions", str(indexes.ABORTED_VERSION), "Apache Kafka's"]
    yield ["manifest of a backup", str(manifest.FORMAT), "read up to this one"]
    yield ["usage in the lake", str(lake_files.SCHEMA_VERSION), "columns are added, types widened"]
    yield [
        "inputs of an invoice", str(snapshot.VERSION),
        f"{', '.join(map(str, snapshot.VERSIONS))} are read: what was issued is computed by its own rules",
    ]  # fmt: skip


INTRODUCTION: Final = """\
What processes of two releases may meet while one [replaces the other](../how-to/upgrade.md). A reader ignores fields
that it does not know, and takes defaults for those that it misses; a number is raised only where that is not enough. A
release that raises one says in the [CHANGELOG](../../CHANGELOG.md) how to go there and back.

Who runs what: each broker registers in ZooKeeper with the version of Penstock (`software_version`), which the page of
the cluster, `GET /operator/clusters/{id}` and `/v1/status` of its admin port show; each agent reports its own to its
host (`agent_version`); `manage.py --version` is that of the code.
"""
OWN_CALLS: Final = """\
## Penstock's own calls

On the internal listener. A broker registers the latest version of each (`features` of its document), and gets no later
one:
"""
KAFKA_CALLS: Final = """\
## Kafka's calls on the internal listener

The version that is sent is served by brokers of the release before. Calls of clients that brokers pass on to each other
keep the client's version.
"""
DATABASE: Final = """\
## Database

Migrations are the version: `manage.py prepare` and `up` apply those that are missing. An agent compares the database
with its code and says so at its host ([check *version*](../how-to/add-a-host.md#what-its-agent-checks)). Migrations of
a release leave what agents of the release before it read and write: hosts, brokers and leases of ports.
"""
Table = Callable[[Sequence[str], Iterable[Sequence[str]]], str]


def versions_page_parts(table: Table) -> list[str]:
    """Returns the parts of the page below its title."""
    return [
        INTRODUCTION,
        OWN_CALLS,
        table(["call", "served"], own_call_rows()),
        KAFKA_CALLS,
        table(["call", "sent by brokers", "sent by the control plane", "served"], call_rows()),
        "## Documents in ZooKeeper\n\n`version` is that of the document's form.\n",
        table(["document", "version"], document_rows()),
        "## Records\n",
        table(["record", "topic", "versions", "is"], record_rows()),
        "## Files\n",
        table(["file", "version", "is"], file_rows()),
        DATABASE,
    ]
