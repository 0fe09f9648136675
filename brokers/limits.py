"""Limits and deadlines of the fleet, as named constants. Configurable ones are read from Django's settings."""

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
    RECEIVED_BYTES_PER_TENANT_MAX,
    UNSENT_BYTES_PER_INSTANCE_MAX,
    UNSENT_BYTES_PER_TENANT_MAX,
)
from brokers.contract.loop_weights import HEAVIEST_BPS, LIGHTEST_BPS, TENANT_WEIGHT_MAX
from tenants.limits import AUDIT_CLIENT_ROWS_KEPT_DAYS, Limit, register

# Capacity of one broker. Measured on one core (docs/explanation/PERFORMANCE.md); an operator may change it for a
# broker.
BROKER_BANDWIDTH_MB_S = int(getattr(settings, "BROKER_BANDWIDTH_MB_S", 1_000))
BROKER_STORAGE_GB = int(getattr(settings, "BROKER_STORAGE_GB", 1_000))
BROKER_CAPACITY_MAX = 1_000_000

# CKA-47: an instance is placed on at least this many brokers, where the cluster has them.
BROKERS_PER_INSTANCE_MIN = 3
BROKERS_PER_CLUSTER_MAX = 32
PORTS_PER_HOST = 10_000

# Size of the fleet. Pages and sums cover all of it.
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
# MB/s, and GB, that all instances of a cluster together may have bought.
CLUSTER_CAPACITY_MAX = BROKERS_PER_CLUSTER_MAX * BROKER_CAPACITY_MAX
# Number of unfinished operations that one run of the task continues; rebalances are continued by the same task.
FLEET_OPERATIONS_PER_ROUND_MAX = 50
# Dedicated clusters that are formed without an operator, for all instances of one tenant in total.
DEDICATED_CLUSTERS_PER_TENANT_MAX = 3

# Settings of brokers in one change.
SETTINGS_PER_CHANGE_MAX = 50
SETTING_NAME_CHARS_MAX = 200

# One try of the reconciler waits this long for acknowledgements; the sweep repeats it until the second deadline passes.
ACK_DEADLINE_S = 8.0
PROVISION_DEADLINE_S = 120.0
PROBE_DEADLINE_S = 5.0
# Time in which brokers must close a deleted instance to clients; afterwards its topics are purged regardless.
CLOSE_DEADLINE_S = 120.0
SWEEP_INSTANCES_MAX = 500
SWEEP_EVERY_S = 5
ZOOKEEPER_CONNECT_TIMEOUT_S = 5.0

# Key sets at tenants' addresses: the number requested per round; each request may take `OUTBOUND_DEADLINE_S`.
KEY_SETS_PER_ROUND_MAX = 40
KEY_SETS_PER_TENANT_AND_ROUND_MAX = 2
KEY_SETS_FETCHED_AT_ONCE = 8
OAUTH_PUBLISHED_PER_ROUND_MAX = 100

ADMIN_CLIENT_CONNECT_TIMEOUT_S = 1.0
# A live broker accepts a connection immediately; a write may wait for the controller.
ADMIN_CLIENT_HELLO_TIMEOUT_S = 0.7
ADMIN_CLIENT_ANSWER_TIMEOUT_S = 5.0
# A broker that did not answer in time is queried last for this long, with this shorter timeout.
SILENCE_REMEMBERED_S = 5.0
SILENT_PATIENCE_S = 0.2
ADMIN_CLIENT_ANSWER_BYTES_MAX = 64 * 1024 * 1024
ADMIN_CLIENT_CONNECTIONS_MAX = 64

# Requests to several brokers for a page: answers later than the deadline are reported as missing. If any broker would
# do, the next one is queried as well after the hedge time.
SCATTER_DEADLINE_S = 1.5
SCATTER_HEDGE_S = 0.25
# Threads that wait for one broker, so that an unresponsive broker does not block requests to others.
SCATTER_THREADS_PER_BROKER = 8
# Time for which requests to a moving or loading coordinator are retried before a write fails.
COORDINATOR_PATIENCE_S = 5.0
COORDINATOR_RETRY_S = 0.1
# Deleting records waits for followers: timeout of one try, of all tries, and the pause between tries.
DELETE_RECORDS_DEADLINE_S = 2.5
DELETE_RECORDS_PATIENCE_S = 4.0
DELETE_RECORDS_RETRY_S = 0.1
# Hanging transactions: partitions scanned for a page, and transactions shown. A transaction that no coordinator knows
# hangs when it is idle for longer than the maximum timeout (transaction.max.timeout.ms).
HANGING_SCAN_PARTITIONS_MAX = 2_000
HANGING_LISTED_MAX = 500
HANGING_DESCRIBED_AT_ONCE = 500
HANGING_UNKNOWN_AFTER_MS = 15 * 60 * 1000
# Lists of groups for polling pages are cached this long, independent of the number of readers.
GROUPS_CACHE_S = 2
# Lags are sampled continuously: the number of groups and partitions requested per cluster and round.
LAG_GROUPS_PER_ROUND_MAX = 500
LAG_PARTITIONS_PER_ROUND_MAX = 5_000
# Instances per round with hashed topic names, which are queried with the identity of the instance.
LAG_OWNERS_PER_ROUND_MAX = 5
# A list of groups longer than a round is used until all its groups are sampled.
LAG_GROUPS_LISTED_MAX = 20_000
# Instances on a Kafka cluster whose groups are listed at once; the next ones follow when all of these are sampled.
LAG_INSTANCES_LISTED_MAX = 50
# Large groups are sampled one after the other; the pause after each is its partitions divided by those of a round.
LAG_LARGE_GROUPS_MAX = 200
LAG_LARGE_GROUP_PARTITIONS_MAX = 100_000

OBSERVE_CONNECT_TIMEOUT_S = 0.3
OBSERVE_ANSWER_TIMEOUT_S = 0.7
OBSERVE_BYTES_MAX = 16 * 1024 * 1024
OBSERVE_CACHE_S = 1
OBSERVE_THREADS = 16
# Pages of an instance's topics requested from one broker.
TOPIC_PAGES_MAX = 400
# Pages of an instance's connections requested from one broker, 250 per page.
CONNECTION_PAGES_MAX = 40
# Pages of the clients of one topic requested from one broker, 250 per page.
TOPIC_CLIENT_PAGES_MAX = 42

# Interval of collecting traffic; per-second samples are kept longer than the live chart shows. A backlog is read in
# spans of bounded length, and in a bounded number of pages of each broker: the next round continues.
SAMPLE_TRAFFIC_EVERY_S = 5
SAMPLES_KEPT_S = 20 * 60
SAMPLE_SPAN_MS = 30_000
SAMPLE_PAGES_MAX = 60

# A broker is late when it has not answered in three runs of the beat task.
OBSERVE_EVERY_S = 5
BROKER_LATE_S = 3 * OBSERVE_EVERY_S
# The operator's first page uses the beat task's last result for this long, and shows its age.
KEPT_IMAGE_S = 120

# The operator's first page: bounds of clusters and action items, and the ages from which an item needs a person.
OVERVIEW_CLUSTERS_MAX = 25
NEEDS_MAX = 40
NEEDS_OF_A_KIND_MAX = 10
# Instances named per incident, and instances cached for each state of partitions in a cluster.
AFFECTED_NAMED_MAX = 20
AFFECTED_INSTANCES_KEPT_MAX = 500
HOST_LATE_S = 30
OPERATION_LATE_S = 180
SOLD_SOON_PERCENT = 90
DISK_SOON_PERCENT = 85
DISK_NOW_PERCENT = 95

# Tenants are notified within 5 s of a broker that does not answer: unresponsive for this long, checked at this
# interval. The observer records every OBSERVE_EVERY_S which brokers answered.
WATCH_EVERY_S = 2
SILENCE_REPORTED_AFTER_S = 3
# A restarting broker is reported when it has been unresponsive for this long.
RESTART_LASTS_S = 10
LEADERLESS_PAGE = 500
LEADERLESS_LISTED_MAX = 2_000

AGENT_POLL_S = 0.5
# An agent checks its machine when its host was changed, and at this interval.
HOST_CHECKED_EVERY_S = 60.0
# Tolerated offset of a host's clock: brokers, tokens and certificates compare times of several machines.
CLOCK_OFFSET_MS_MAX = 1_000
# Ports that the result of a check names; further ones are only counted.
PORTS_NAMED_MAX = 5
AGENT_STOP_TIMEOUT_S = 8.0
# Interval of watching a process that is about to change, and time for its successor to be on standby.
AGENT_WATCH_S = 0.01
AGENT_STAND_BY_TIMEOUT_S = 20.0
# Modules are compiled after the start has finished (decision 86).
AGENT_COMPILE_AFTER_S = 20.0
AGENT_BACKOFF_MIN_S = 0.25
AGENT_BACKOFF_MAX_S = 30.0
AGENT_STABLE_AFTER_S = 30.0

# Agents that joined by a token (decision 163).
JOIN_TOKEN_MINUTES = 60
JOIN_TOKEN_CHARS_MAX = 128
AGENT_VERSION_CHARS_MAX = 32
# A request is refused if its time differs more from the control plane's: it was delayed, or a clock is wrong.
AGENT_CLOCK_S_MAX = 300
AGENT_CSR_CHARS_MAX = 4_096
AGENT_REPORT_BYTES_MAX = 64 * 1024
AGENT_REPORT_ENDS_MAX = 10_000
AGENT_CHECKS_MAX = 16
AGENT_REQUESTS_PER_MINUTE_MAX = 300
# Many agents may share an address.
AGENT_REQUESTS_PER_ADDRESS_AND_MINUTE_MAX = 12_000
# Refused requests in the name of a host that the audit log lists per minute; all of them are in the program's log.
AGENT_REFUSALS_AUDITED_PER_MINUTE_MAX = 10
# Shortest and longest poll interval of an agent. In between, it grows with the number of agents, so that all of them
# together send this many requests per second.
AGENT_POLL_S_MIN = 1.0
AGENT_POLL_S_MAX = 15.0
AGENT_POLLS_PER_S_MAX = 20
# Limits in a joined agent: timeout of a request, size of an answer, and longest pause after failures.
AGENT_REQUEST_TIMEOUT_S = 10.0
AGENT_ANSWER_BYTES_MAX = 4 * 1024 * 1024
AGENT_RETRY_S_MAX = 30.0
# Removing a broker as lost gives up the data that only it has: not allowed for a broker that is merely restarting.
BROKER_LOST_AFTER_S = 300

# Moves of replicas: partitions that each broker receives and sends at a time, moves begun per request, and moves per
# plan.
MOVES_PER_BROKER = 10
MOVES_PER_BROKER_MAX = 100
MOVES_BEGUN_AT_ONCE = 100
MOVES_PER_PLAN_MAX = 20_000
# Bandwidth in MB/s to which an operator may limit a broker's copying, and topics per request to set it.
COPY_MB_S_MAX = 10_000
PACED_TOPICS_AT_ONCE = 100
# Intervals of the task that continues moves and restarts, while there is work.
WORK_LOOK_EVERY_S = 0.2
WORK_ROUND_S = 0.8


def publish() -> None:
    """Registers the limits of the fleet that the API shows under `/limits`; called once from `AppConfig.ready`."""
    register(
        *_access_control_limits(),
        Limit(
            "dedicated_clusters_per_tenant_max",
            DEDICATED_CLUSTERS_PER_TENANT_MAX,
            "clusters",
            "Clusters for dedicated instances of one tenant that are formed without an operator; more instances wait.",
        ),
        *_agent_limits(),
    )
    _publish_coordinator_limits()
    _publish_connections()
    _publish_memory()
    _publish_loop_weights()
    _publish_audit()


def _agent_limits() -> tuple[Limit, ...]:
    return (
        Limit("join_token_minutes", JOIN_TOKEN_MINUTES, "minutes", "How long the join token of a host can be used."),
        Limit("agent_report_bytes_max", AGENT_REPORT_BYTES_MAX, "bytes", "Largest report of an agent."),
        Limit(
            "agent_requests_per_minute_max",
            AGENT_REQUESTS_PER_MINUTE_MAX,
            "requests",
            "Requests per minute of an agent that joined by a token.",
        ),
        Limit(
            "agent_requests_per_address_and_minute_max",
            AGENT_REQUESTS_PER_ADDRESS_AND_MINUTE_MAX,
            "requests",
            "The same of all agents behind one address.",
        ),
        Limit(
            "agent_polls_per_second_max",
            AGENT_POLLS_PER_S_MAX,
            "requests",
            "Polls of all agents together that the control plane asks for; with more agents each waits longer, "
            "up to 15 s.",
        ),
        Limit(
            "agent_clock_seconds_max",
            AGENT_CLOCK_S_MAX,
            "seconds",
            "Difference between the time of an agent's request and the control plane's.",
        ),
    )


def _publish_coordinator_limits() -> None:
    register(
        Limit(
            "groups_per_instance_max",
            coordinator_limits.GROUPS_PER_INSTANCE_MAX,
            "groups",
            "Consumer groups of one instance.",
        ),
        Limit(
            "coordinator_instances_per_tenant_max",
            coordinator_limits.TENANT_INSTANCES_MAX,
            "instances",
            "Groups, members, offsets, transactional ids and their memory of all instances of one tenant in a cluster "
            "together, in limits of one instance.",
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


def _publish_memory() -> None:
    register(
        Limit(
            "unsent_bytes_per_broker_max",
            UNSENT_BYTES_PER_INSTANCE_MAX,
            "bytes",
            "Memory of responses of one instance that its clients do not read; beyond, idle connections are closed.",
        ),
        Limit(
            "unsent_bytes_per_tenant_and_broker_max",
            UNSENT_BYTES_PER_TENANT_MAX,
            "bytes",
            "That of all instances of one tenant together.",
        ),
        Limit(
            "received_bytes_per_broker_max",
            RECEIVED_BYTES_PER_INSTANCE_MAX,
            "bytes",
            "Memory of large requests that one instance has half sent to a broker; its oldest request may pass it.",
        ),
        Limit(
            "received_bytes_per_tenant_and_broker_max",
            RECEIVED_BYTES_PER_TENANT_MAX,
            "bytes",
            "That of all instances of one tenant together.",
        ),
        Limit(
            "received_bytes_per_broker_min",
            RECEIVED_BYTES_PER_INSTANCE_MIN,
            "bytes",
            "Memory of these that an instance finds whatever other tenants use, four instances of a tenant at the same "
            "time. Beyond, the slowest lose their connection to others.",
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


def _access_control_limits() -> tuple[Limit, ...]:
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
