"""Limits and deadlines of the fleet, each a named constant. What an operator may set is read from Django's settings."""

from __future__ import annotations

from django.conf import settings

from brokers.contract import acls, audit_limits, authentication_limits, coordinator_limits
from brokers.contract import audit as audit_events
from brokers.contract.connections import (
    CONNECTIONS_PER_INSTANCE_MAX,
    CREATIONS_PER_INSTANCE_PER_S_MAX,
    HANDSHAKE_MS_MAX,
    HANDSHAKES_PER_ADDRESS_MAX,
    HANDSHAKES_PER_INSTANCE_MAX,
    PROXY_HEADER_BYTES_MAX,
    PROXY_HEADER_MS_MAX,
    RECEIVED_BYTES_PER_INSTANCE_MAX,
    RECEIVED_BYTES_PER_INSTANCE_MIN,
)
from brokers.contract.loop_weights import HEAVIEST_BPS, LIGHTEST_BPS, TENANT_WEIGHT_MAX
from tenants.limits import AUDIT_CLIENT_ROWS_KEPT_DAYS, Limit, register

# What one broker can sell. Measured on one core (docs/explanation/PERFORMANCE.md); an operator may change it for a
# broker.
BROKER_BANDWIDTH_MB_S = int(getattr(settings, "BROKER_BANDWIDTH_MB_S", 1_000))
BROKER_STORAGE_GB = int(getattr(settings, "BROKER_STORAGE_GB", 1_000))
BROKER_CAPACITY_MAX = 1_000_000

# CKA-47: an instance lives on at least this many brokers, where the cluster has them.
BROKERS_PER_INSTANCE_MIN = 3
BROKERS_PER_CLUSTER_MAX = 32
PORTS_PER_HOST = 10_000

# The fleet. Pages and sums go over all of it.
HOSTS_MAX = 1_000
CLUSTERS_MAX = 200
BROKERS_PER_HOST_MAX = 64
HOST_NAME_CHARS_MAX = 63
CLUSTER_NAME_CHARS_MAX = 40
ZONE_CHARS_MAX = 64
ZONES_PER_CLUSTER_MAX = 32
ADDRESS_CHARS_MAX = 255
PATH_CHARS_MAX = 500
DIRECTORIES_MAX = 32
CLUSTER_PARTITIONS_MAX = 1_000_000
# Operations that were not finished are carried on by the same task as rebalances; so many a look.
FLEET_OPERATIONS_PER_ROUND_MAX = 50
# Dedicated clusters that are made without an operator, for all instances of one tenant together.
DEDICATED_CLUSTERS_PER_TENANT_MAX = 3

# One try of the reconciler waits this long for acknowledgements; the sweep tries again until the second runs out.
ACK_DEADLINE_S = 8.0
PROVISION_DEADLINE_S = 120.0
PROBE_DEADLINE_S = 5.0
# Brokers have this long to close a deleted instance to clients before its topics are purged all the same.
CLOSE_DEADLINE_S = 120.0
SWEEP_INSTANCES_MAX = 500
SWEEP_EVERY_S = 5
ZOOKEEPER_CONNECT_TIMEOUT_S = 5.0

# Key sets at addresses that tenants name: a round asks for so many, and each may take `OUTBOUND_DEADLINE_S`.
KEY_SETS_PER_ROUND_MAX = 40
KEY_SETS_PER_TENANT_AND_ROUND_MAX = 2
KEY_SETS_FETCHED_AT_ONCE = 8
OAUTH_PUBLISHED_PER_ROUND_MAX = 100

ADMIN_CLIENT_CONNECT_TIMEOUT_S = 1.0
# Who is alive says hello at once; a write may wait for the controller.
ADMIN_CLIENT_HELLO_TIMEOUT_S = 0.7
ADMIN_CLIENT_ANSWER_TIMEOUT_S = 5.0
# A broker that let a request wait is asked last, and waited for no longer than the patience, for so long.
SILENCE_REMEMBERED_S = 5.0
SILENT_PATIENCE_S = 0.2
ADMIN_CLIENT_ANSWER_BYTES_MAX = 64 * 1024 * 1024
ADMIN_CLIENT_CONNECTIONS_MAX = 64

# Several brokers asked at once for a page: what is not there by then is told as missing. One that has not answered
# where any would do is not waited for longer than the hedge before the next is asked too.
SCATTER_DEADLINE_S = 1.5
SCATTER_HEDGE_S = 0.25
# Threads that wait for one broker: those of one that stands still are kept from nobody else.
SCATTER_THREADS_PER_BROKER = 8
# A coordinator that is moving or loading is tried again so long before a write is given up.
COORDINATOR_PATIENCE_S = 5.0
COORDINATOR_RETRY_S = 0.1
# Deleting records waits for followers: one try, all tries together, and the pause between tries.
DELETE_RECORDS_DEADLINE_S = 2.5
DELETE_RECORDS_PATIENCE_S = 4.0
DELETE_RECORDS_RETRY_S = 0.1
# Hanging transactions: a page looks through so many partitions and shows at most so many transactions. One that no
# coordinator knows of hangs when it is silent for longer than any time-out may be (transaction.max.timeout.ms).
HANGING_SCAN_PARTITIONS_MAX = 2_000
HANGING_LISTED_MAX = 500
HANGING_DESCRIBED_AT_ONCE = 500
HANGING_UNKNOWN_AFTER_MS = 15 * 60 * 1000
# Groups that pages poll are asked for once in so many seconds, however many people look.
GROUPS_CACHE_S = 2
# Lags are sampled without anybody looking: of each cluster, a round asks for so many groups and partitions.
LAG_GROUPS_PER_ROUND_MAX = 500
LAG_PARTITIONS_PER_ROUND_MAX = 5_000
# Names that only the owner is told, of so many instances a round.
LAG_OWNERS_PER_ROUND_MAX = 5
# A list of groups serves until it is worked through, if it is longer than a round.
LAG_GROUPS_LISTED_MAX = 20_000
# Large groups come one after the other, each as long after the one before as it had rounds' partitions.
LAG_LARGE_GROUPS_MAX = 200
LAG_LARGE_GROUP_PARTITIONS_MAX = 100_000

OBSERVE_CONNECT_TIMEOUT_S = 0.3
OBSERVE_ANSWER_TIMEOUT_S = 0.7
OBSERVE_BYTES_MAX = 16 * 1024 * 1024
OBSERVE_CACHE_S = 1
OBSERVE_THREADS = 16
# Pages that one broker is asked for of an instance's topics.
TOPIC_PAGES_MAX = 400
# The same of its connections, 500 a page.
CONNECTION_PAGES_MAX = 20
# The same of the clients of one topic, 500 a page.
TOPIC_CLIENT_PAGES_MAX = 21

# Traffic is collected so often; seconds of it are kept for longer than the live chart reaches. What a round is behind
# it takes up in spans of so long, and in so many pages of each broker: the next round goes on.
SAMPLE_TRAFFIC_EVERY_S = 5
SAMPLES_KEPT_S = 20 * 60
SAMPLE_SPAN_MS = 30_000
SAMPLE_PAGES_MAX = 60

# A broker is late when it has not been seen for three looks of the beat task.
OBSERVE_EVERY_S = 5
BROKER_LATE_S = 3 * OBSERVE_EVERY_S
# What the beat task was told of a cluster serves the operator's first page for so long, with its age said.
KEPT_IMAGE_S = 120

# The operator's first page: so many clusters and sentences, and when a thing needs a person.
OVERVIEW_CLUSTERS_MAX = 50
NEEDS_MAX = 40
NEEDS_OF_A_KIND_MAX = 10
# Of each incident so many instances are named, and so many are known of partitions that lack something.
AFFECTED_NAMED_MAX = 20
AFFECTED_INSTANCES_KEPT_MAX = 500
HOST_LATE_S = 30
OPERATION_LATE_S = 180
SOLD_SOON_PERCENT = 90
DISK_SOON_PERCENT = 85
DISK_NOW_PERCENT = 95

# Tenants are told within 5 s of a broker that does not answer: silent for so long, looked at so often. The observer
# notes every OBSERVE_EVERY_S who answered.
WATCH_EVERY_S = 2
SILENCE_REPORTED_AFTER_S = 3
# A broker under restart is reported when it has been silent for so long.
RESTART_LASTS_S = 10
LEADERLESS_PAGE = 500
LEADERLESS_LISTED_MAX = 2_000

AGENT_POLL_S = 0.5
# An agent looks at its machine when its host was changed, and this often.
HOST_CHECKED_EVERY_S = 60.0
# Brokers, tokens and certificates compare times of several machines.
CLOCK_OFFSET_MS_MAX = 1_000
# Named in a check; of more the number is said.
PORTS_NAMED_MAX = 5
AGENT_STOP_TIMEOUT_S = 8.0
# While something is about to happen to a process; and how long its successor may take to stand by.
AGENT_WATCH_S = 0.01
AGENT_STAND_BY_TIMEOUT_S = 20.0
# Compiled modules are made when the start is over (decision 86).
AGENT_COMPILE_AFTER_S = 20.0
AGENT_BACKOFF_MIN_S = 0.25
AGENT_BACKOFF_MAX_S = 30.0
AGENT_STABLE_AFTER_S = 30.0
# Removing a broker as lost gives up what only it has: nobody may do that to one that is merely restarting.
BROKER_LOST_AFTER_S = 300

# Moves of replicas. Each broker receives and sends so many partitions at a time; a request to the brokers begins at
# most so many, and a plan has at most so many.
MOVES_PER_BROKER = 10
MOVES_PER_BROKER_MAX = 100
MOVES_BEGUN_AT_ONCE = 100
MOVES_PER_PLAN_MAX = 20_000
# How fast an operator may let a broker copy, in MB/s. A request sets as many topics to that pace.
COPY_MB_S_MAX = 10_000
PACED_TOPICS_AT_ONCE = 100
# The task that carries moves and restarts forward looks so often, while there is something to do.
WORK_LOOK_EVERY_S = 0.2
WORK_ROUND_S = 0.8


def publish() -> None:
    """Put what brokers hold instances to under `/limits`; called once from `AppConfig.ready`."""
    register(
        *_of_access_control(),
        Limit(
            "dedicated_clusters_per_tenant_max",
            DEDICATED_CLUSTERS_PER_TENANT_MAX,
            "clusters",
            "Clusters for dedicated instances of one tenant that are formed without an operator; more instances wait.",
        ),
    )
    _publish_what_is_kept()
    _publish_connections()
    _publish_loop_weights()
    _publish_audit()


def _publish_what_is_kept() -> None:
    register(
        Limit(
            "groups_per_instance_max",
            coordinator_limits.GROUPS_PER_INSTANCE_MAX,
            "groups",
            "Consumer groups of one instance.",
        ),
        Limit(
            "group_members_per_instance_max",
            coordinator_limits.MEMBERS_PER_INSTANCE_MAX,
            "members",
            "Members of all groups of one instance together.",
        ),
        Limit(
            "group_member_bytes_per_instance_max",
            coordinator_limits.MEMBER_BYTES_PER_INSTANCE_MAX,
            "bytes",
            "What these say of themselves and are assigned, 2,048 bytes for each of them included.",
        ),
        Limit(
            "offsets_per_instance_max",
            coordinator_limits.OFFSETS_PER_INSTANCE_MAX,
            "offsets",
            "Committed offsets of one instance: partitions, each counted in every group.",
        ),
        Limit(
            "offset_bytes_per_instance_max",
            coordinator_limits.OFFSET_BYTES_PER_INSTANCE_MAX,
            "bytes",
            "Metadata of these, 256 bytes for each of them included.",
        ),
        Limit(
            "transactional_ids_per_instance_max",
            coordinator_limits.TRANSACTIONAL_IDS_PER_INSTANCE_MAX,
            "ids",
            "Transactional ids of one instance; at the limit those go that nobody used for a day.",
        ),
        Limit(
            "open_transaction_partitions_per_instance_max",
            coordinator_limits.OPEN_PARTITIONS_PER_INSTANCE_MAX,
            "partitions",
            "Partitions in open transactions of one instance, each counted in every transaction.",
        ),
    )


def _publish_loop_weights() -> None:
    register(
        Limit(
            "loop_bandwidth_bytes_per_second_min",
            LIGHTEST_BPS,
            "bytes/s",
            "While several tenants keep a broker busy, an instance's part of its processor follows the bandwidth "
            "bought, from this one on; what bought less has the part of this.",
        ),
        Limit(
            "loop_bandwidth_bytes_per_second_max",
            HEAVIEST_BPS,
            "bytes/s",
            "The same: what bought more has the part of this.",
        ),
        Limit(
            "loop_instances_per_tenant_max",
            TENANT_WEIGHT_MAX,
            "instances",
            "The part of a tenant at most, in parts of the largest one of its instances.",
        ),
    )


def _publish_connections() -> None:
    register(
        Limit(
            "handshakes_per_broker_max",
            HANDSHAKES_PER_INSTANCE_MAX,
            "connections",
            "TLS handshakes of one instance that a broker has begun; one more drops one of the address with most.",
        ),
        Limit(
            "handshakes_per_address_max",
            HANDSHAKES_PER_ADDRESS_MAX,
            "connections",
            "Of these, from one address or one IPv6 network of 64 bits; one more drops the oldest of them.",
        ),
        Limit("handshake_seconds_max", HANDSHAKE_MS_MAX // 1_000, "seconds", "How long a TLS handshake may take."),
        Limit("proxy_header_bytes_max", PROXY_HEADER_BYTES_MAX, "bytes", "Largest header of PROXY protocol version 2."),
        Limit("proxy_header_seconds_max", PROXY_HEADER_MS_MAX // 1_000, "seconds", "How long such a header may take."),
        Limit(
            "connections_per_broker_max",
            CONNECTIONS_PER_INSTANCE_MAX,
            "connections",
            "Connections of one instance to one broker; more are closed at once.",
        ),
        Limit(
            "new_connections_per_second_max",
            CREATIONS_PER_INSTANCE_PER_S_MAX,
            "connections",
            "New connections a second of one instance to one broker; more wait, one address after the other.",
        ),
        Limit(
            "received_bytes_per_broker_max",
            RECEIVED_BYTES_PER_INSTANCE_MAX,
            "bytes",
            "Memory of large requests that one instance has half sent to a broker; its oldest request may pass it.",
        ),
        Limit(
            "received_bytes_per_broker_min",
            RECEIVED_BYTES_PER_INSTANCE_MIN,
            "bytes",
            "Memory of these that an instance finds in any case. Beyond, the slowest lose their connection to others.",
        ),
        Limit(
            "client_failures_per_user_and_minute_max",
            authentication_limits.USER_FAILURES_PER_MINUTE,
            "passwords",
            "Wrong passwords of one user of an instance from one address to one broker; more are not looked at.",
        ),
        Limit(
            "client_failures_per_address_and_minute_max",
            authentication_limits.ADDRESS_FAILURES_PER_MINUTE,
            "passwords",
            "Wrong passwords to one instance from one address (one /64 network with IPv6) to one broker.",
        ),
    )


def _publish_audit() -> None:
    register(
        Limit(
            "audit_changes_at_once_max",
            audit_limits.CHANGES_LISTED_BURST,
            "changes",
            "By Kafka clients of one instance through one broker that the audit log names one by one after a pause; "
            "more are counted by user, address and action.",
        ),
        Limit(
            "audit_changes_per_minute_max",
            audit_limits.CHANGES_LISTED_PER_MINUTE,
            "changes",
            "The same, in the long run.",
        ),
        Limit(
            "audit_things_per_request_max",
            audit_events.ITEMS_MAX,
            "things",
            "Of one request of a Kafka client that the audit log names; the others are counted.",
        ),
        Limit(
            "audit_event_bytes_max",
            audit_events.EVENT_BYTES_MAX,
            "bytes",
            "What the audit log keeps of one such request; longer values are cut.",
        ),
        Limit(
            "audit_kinds_per_minute_max",
            audit_limits.TALLIES_PER_INSTANCE_MAX,
            "kinds",
            "Users, addresses and reasons of failed sign-ins, or of refused changes, that one broker tells apart in a "
            "minute; those of all others are counted together.",
        ),
        Limit(
            "audit_rows_of_clients_kept_days",
            AUDIT_CLIENT_ROWS_KEPT_DAYS,
            "days",
            "How long the audit log keeps what Kafka clients did; what people did stays.",
        ),
    )


def _of_access_control() -> tuple[Limit, ...]:
    return (
        Limit(
            "acl_entries_per_instance_max",
            acls.ENTRIES_MAX,
            "entries",
            "Access control entries of one instance, those of all resource patterns together.",
        ),
        Limit(
            "acl_bytes_per_instance_max",
            acls.ACL_BYTES_MAX,
            "bytes",
            "What these weigh in ZooKeeper, 100 bytes for each resource pattern included.",
        ),
        Limit(
            "acl_name_bytes_max",
            acls.NAME_BYTES_MAX,
            "bytes",
            "Name of a resource, principal or host of such an entry; what is no letter, digit, - _ or . counts as "
            "three for each byte of UTF-8.",
        ),
    )
