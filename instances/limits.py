"""Limits of instances and topics, as named constants; those that a tenant can reach are published at `/limits`."""

from __future__ import annotations

from datetime import timedelta

from instances.copying import limits as copy_limits
from instances.message_limits import limits_of_messages
from instances.oauth import limits as oauth_limits
from instances.quickstart.limits import SAMPLE_RUNS_PER_TENANT_MAX
from instances.routes.certificate_entries import (
    CLIENT_CA_BYTES_MAX,
    CLIENT_CA_CERTIFICATES_MAX,
    CLIENT_CHAIN_MAX,
    PRIVATE_KEY_BYTES_MAX,
    REVOCATION_LIST_BYTES_MAX,
    REVOKED_MAX,
    RSA_BITS_MAX,
    SERVER_CHAIN_BYTES_MAX,
    SERVER_CHAIN_MAX,
)
from instances.routes.kinds import CIDRS_MAX, MAPPING_RULES_CHARS_MAX, ROUTE_NAME_CHARS_MAX, ROUTES_MAX
from instances.routes.principal_mapping import DISTINGUISHED_NAME_CHARS_MAX, PROGRAM_SIZE_MAX, RULES_MAX
from instances.topics.limits import ALLOW_LIST_BYTES_MAX, PARTITIONS_PER_TOPIC_MAX, REPLICATION_FACTOR_MAX
from instances.users.limits import SECRETS_PER_USER_MAX, USER_NAME_BYTES_MAX, USERS_PER_INSTANCE_MAX
from tenants.limits import Limit, allow_long_bodies, register

# Last segments of paths in the API whose request bodies may be long.
REVOCATION_LIST_SEGMENT = "revocation-list"
MESSAGES_SEGMENT = "messages"

INSTANCES_PER_TENANT_MAX = 200
OPERATIONS_OPEN_PER_INSTANCE_MAX = 20
NAME_CHARS_MAX = 40
NAME_PATTERN = rf"^[a-z](?:[a-z0-9-]{{0,{NAME_CHARS_MAX - 2}}}[a-z0-9])?$"
BANDWIDTH_MB_S_MAX = 100_000
STORAGE_GB_MAX = 1_000_000

# Minimum age in minutes of records that "shrink_retention" deletes: default and maximum of the tenant's setting.
RETENTION_MINUTES_MIN_DEFAULT = 60
RETENTION_MINUTES_MAX = 525_600
# Percent of the bought storage at which a growing instance grows. Refused growth is retried after this time.
GROW_FROM_PERCENT = 90
GROWTH_RETRIED_AFTER = timedelta(minutes=15)
# Interval of sampling used bytes; half a day of samples is kept for the forecast of when the storage is full.
STORAGE_SAMPLE_EVERY_S = 120
STORAGE_SAMPLES_MAX = 360
STORAGE_TOPICS_PER_PAGE = 50

DEFAULT_PARTITIONS_MAX = 100
TOPIC_CONFIGS_MAX = 50
CONFIG_VALUE_CHARS_MAX = 1_000
RETENTION_HOURS_MAX = (2**63 - 1) // 3_600_000  # retention.ms is a long
ALLOW_LIST_ENTRIES_MAX = 512
# Topics with allow-lists. Every broker reads all lists.
ALLOW_LISTS_PER_INSTANCE_MAX = 10_000
# Changes of one topic, of one user and of the access rules are serialized, but no web thread waits long behind a slow
# broker.
DATA_PLANE_LOCK_WAIT_MS = 3_000
ADDRESS_CHARS_MAX = 43  # the longest CIDR: 39 characters of IPv6 and /128

# Offsets moved by one reset: its table is read by a person, and its audit row contains all of them.
RESET_PARTITIONS_MAX = 1_000
# Partitions of one group, and of all groups of a list, whose lags are summed up. The lag of a larger group is shown on
# its own page, one page of partitions at a time.
LAG_PARTITIONS_PER_GROUP_MAX = 2_000
LAG_PARTITIONS_PER_LIST_MAX = 10_000
GROUP_PARTITIONS_PER_PAGE = 50
# Partitions of a lagging group whose leaders are queried for open transactions, and transactions shown.
BLOCKED_PARTITIONS_QUERIED_MAX = 50
BLOCKING_TRANSACTIONS_SHOWN_MAX = 5
# Partitions of one group in one query; beyond that, one topic at a time.
GROUP_PARTITIONS_SHOWN_MAX = 10_000
# Trend of a lag: interval of samples, their number (for a quarter of an hour), and span in which a lag has to grow.
LAG_SAMPLE_EVERY_S = 10
LAG_SAMPLES_MAX = 90
LAG_GREW_FOR_S = 60
# Shortest span of samples for which "more than … behind" is shown, and partitions whose ends are sampled for it.
LAG_BEHIND_SHOWN_FROM_S = 60
LAG_ENDS_PARTITIONS_MAX = 200
# Time for which the last known lag of a group is shown: in a large cluster, a group is sampled only this often.
LAG_SHOWN_FOR_S = 300
LAG_GROUPS_SHOWN_MAX = 2_000
# Topics, and pairs of a group and a topic, in one scrape of an instance's metrics.
METRIC_TOPICS_MAX = 1_000
METRIC_LAGS_MAX = 2_000
METRIC_RATE_SPAN_S = 60

# Time for which the data of a deleted instance is kept; afterwards it is deleted permanently.
INSTANCE_RESTORE_PERIOD = timedelta(days=7)
# Storage that the deleted instances of a tenant may use, free of charge; beyond it the tenant can buy no storage.
DELETED_STORAGE_GB_MAX = 2_000
# Delays are kept by the minute for the longest span of a chart.
DELAYED_MINUTES_KEPT = timedelta(days=31)
TRAFFIC_SECONDS_MAX = 900
# Span of traffic, back from the brokers' own time, that is queried for the last full second.
TRAFFIC_LATEST_MS = 10_000
# Causes of throttling by minute and broker: retention (a whole week and the current day), number of causes in a row of
# the table, number of clients of a cause, length of their names, and rows deleted at once, which are more than can
# arrive meanwhile.
THROTTLED_MINUTES_KEPT = timedelta(days=8)
THROTTLED_CAUSES_MAX = 8
THROTTLED_CLIENTS_MAX = 3
THROTTLED_NAME_CHARS_MAX = 64
THROTTLED_ROWS_DELETED_MAX = 10_000
# Causes on one page of the console, over all steps.
THROTTLED_STEPS_SHOWN_MAX = 300
# Number of topics created last among which a snippet's topic is chosen.
TOPICS_CREATED_CONSIDERED_MAX = 50
# Table of topics: age up to which it is shown without a refresh; build time beyond which an older table is shown while
# the next one is built, up to the next age; and interval of requests for the next one.
TOPIC_TABLE_FRESH_S = 1
TOPIC_TABLE_QUICK_MS = 100
TOPIC_TABLE_KEPT_S = 60
TOPIC_TABLE_REFRESH_EVERY_S = 2
# A table is refreshed only when its age is this many times its build time, so that building takes a small part of the
# brokers' time.
TOPIC_TABLE_REFRESH_FACTOR = 10
# Time for which a deleted topic is left out of the table.
TOPIC_TABLE_DELETED_KEPT_S = 30
# Time for which a topic is shown as being created or restored at most, and number of such topics of an instance.
PENDING_TOPIC_SHOWN_S = 30
PENDING_TOPICS_KEPT_MAX = 200
# Deleted topics of an instance that can be restored. The oldest is purged if there are more, and if this percentage of
# the storage is used, which is less than `GROW_FROM_PERCENT`.
DELETED_TOPICS_MAX = 100
DELETED_TOPICS_EXPIRE_FROM_PERCENT = 85
# Deleted users of an instance that can be restored: the oldest is purged if there are more.
DELETED_USERS_KEPT_DAYS = 7
DELETED_USERS_MAX = 50
# Maximum number of topics, and of users, that one round of the task purges, and time after which it retries a failed
# purge: the others come first meanwhile.
PURGES_PER_ROUND_MAX = 50
PURGE_RETRIED_AFTER_S = 600
# Listed connections of an instance, and the time for which the brokers' report is shown.
CONNECTIONS_LISTED_MAX = 10_000
CONNECTIONS_KEPT_S = 2
# For one client of a topic: addresses and groups shown, and groups of the topic that are queried for members.
CLIENT_ADDRESSES_SHOWN_MAX = 3
CLIENT_GROUPS_SHOWN_MAX = 3
CLIENT_GROUPS_QUERIED_MAX = 50
# Rates of topics: the usual seconds between two reads of the counters, and their bounds.
TOPIC_RATE_SPAN_S = 20
TOPIC_RATE_SPAN_MIN_S = 2
TOPIC_RATE_SPAN_MAX_S = 300
# Topics in one action on a selection.
TOPICS_AT_ONCE_MAX = 50
# Greatest age of the names that the search palette uses.
TOPIC_NAMES_KEPT_S = 5

# The largest batch that a topic may accept: the bytes that the instance may produce in one second, between these two.
MESSAGE_BYTES_MAX_LOWER_BOUND = 1_048_588  # Kafka's default of `max.message.bytes`
MESSAGE_BYTES_MAX = 12_582_912

BYTES_PER_MB = 1_000_000
BYTES_PER_GB = 1_000_000_000


def publish() -> None:
    """Registers the limits under `/limits`; called once from `AppConfig.ready`."""
    allow_long_bodies(REVOCATION_LIST_SEGMENT)
    allow_long_bodies(MESSAGES_SEGMENT)
    register(*_token_limits(), *_deletion_limits())
    register(*limits_of_messages())
    register(*_sample_limits(), *_copy_limits())
    register(
        Limit("instances_per_tenant_max", INSTANCES_PER_TENANT_MAX, "instances", "Instances of one tenant."),
        Limit("instance_name_chars_max", NAME_CHARS_MAX, "characters", "Length of an instance's name."),
        Limit("allow_list_entries_max", ALLOW_LIST_ENTRIES_MAX, "entries", "Addresses in one allow-list of a topic."),
        Limit(
            "allow_lists_per_instance_max",
            ALLOW_LISTS_PER_INSTANCE_MAX,
            "topics",
            "Topics with allow-lists in one instance.",
        ),
        Limit(
            "allow_list_bytes_max",
            ALLOW_LIST_BYTES_MAX,
            "bytes",
            "All allow-lists of one instance together: 400 for each topic that has one, and the addresses.",
        ),
        Limit("routes_per_instance_max", ROUTES_MAX, "routes", "Ways into one instance, each with ports of its own."),
        Limit("route_cidrs_max", CIDRS_MAX, "entries", "Addresses and networks in one list of a route."),
        Limit("route_name_chars_max", ROUTE_NAME_CHARS_MAX, "characters", "Length of a route's name."),
        Limit("partitions_per_topic_max", PARTITIONS_PER_TOPIC_MAX, "partitions", "Partitions of one topic."),
        Limit(
            "message_bytes_max",
            MESSAGE_BYTES_MAX,
            "bytes",
            "Largest `max.message.bytes` of a topic; less where the instance's bandwidth of one second is less.",
        ),
        Limit("users_per_instance_max", USERS_PER_INSTANCE_MAX, "users", "Users of one instance."),
        Limit("secrets_per_user_max", SECRETS_PER_USER_MAX, "passwords", "Passwords of one user that work at a time."),
        Limit(
            "user_name_bytes_max",
            USER_NAME_BYTES_MAX,
            "bytes",
            "Name of a user; what is no ASCII letter, digit, `-`, `_` or `.` counts three for each of its bytes.",
        ),
        Limit("topics_at_once_max", TOPICS_AT_ONCE_MAX, "topics", "Topics that one act of the console takes together."),
        Limit("connections_listed_max", CONNECTIONS_LISTED_MAX, "connections", "Connections of an instance in a list."),
        Limit("metric_topics_max", METRIC_TOPICS_MAX, "topics", "Topics in one scrape of an instance's metrics."),
        Limit("metric_lags_max", METRIC_LAGS_MAX, "series", "Lags by group and topic in one scrape of metrics."),
        Limit("reset_partitions_max", RESET_PARTITIONS_MAX, "partitions", "Offsets that one reset of a group moves."),
        Limit("replication_factor_max", REPLICATION_FACTOR_MAX, "replicas", "Copies of each partition of a topic."),
    )
    register(*_certificate_limits())


def _deletion_limits() -> tuple[Limit, ...]:
    return (
        Limit(
            "instance_restore_days",
            INSTANCE_RESTORE_PERIOD.days,
            "days",
            "How long a deleted instance can be restored.",
        ),
        Limit(
            "deleted_storage_gb_max",
            DELETED_STORAGE_GB_MAX,
            "GB",
            "Storage of a tenant's deleted instances from which on no instance is created and no storage grows, until "
            "one is purged or restored.",
        ),
        Limit(
            "deleted_topics_max",
            DELETED_TOPICS_MAX,
            "topics",
            "Deleted topics of an instance that can be restored; the oldest goes when there are more.",
        ),
        Limit(
            "deleted_users_max",
            DELETED_USERS_MAX,
            "users",
            "Deleted users of an instance that can be restored; the oldest goes when there are more.",
        ),
        Limit("deleted_user_restore_days", DELETED_USERS_KEPT_DAYS, "days", "How long a deleted user can be restored."),
    )


def _copy_limits() -> tuple[Limit, ...]:
    return (
        Limit("copies_per_instance_max", copy_limits.COPIES_PER_INSTANCE_MAX, "copies", "Topics copied at once."),
        Limit("copies_per_tenant_max", copy_limits.COPIES_PER_TENANT_MAX, "copies", "Of all instances of one tenant."),
        Limit(
            "copy_bandwidth_percent",
            copy_limits.COPY_BANDWIDTH_PERCENT,
            "percent",
            "Share of the instance's bandwidth that copying a topic takes.",
        ),
        Limit("copy_bytes_per_s_max", copy_limits.COPY_BYTES_PER_S_MAX, "bytes/s", "Pace of copying a topic."),
    )


def _sample_limits() -> tuple[Limit, ...]:
    return (
        Limit(
            "sample_runs_per_tenant_max",
            SAMPLE_RUNS_PER_TENANT_MAX,
            "runs",
            "Runs of sample data of one tenant at once, one of an instance.",
        ),
    )


def _certificate_limits() -> tuple[Limit, ...]:
    return (
        Limit(
            "client_ca_bytes_max",
            CLIENT_CA_BYTES_MAX,
            "bytes",
            "Certificates of the authorities that may sign those of a route's clients, as PEM.",
        ),
        Limit("client_ca_certificates_max", CLIENT_CA_CERTIFICATES_MAX, "certificates", "Of these authorities."),
        Limit(
            "client_chain_certificates_max",
            CLIENT_CHAIN_MAX,
            "certificates",
            "From a client's certificate to that of an authority, both included.",
        ),
        Limit("revocation_list_bytes_max", REVOCATION_LIST_BYTES_MAX, "bytes", "Revocation list of a route, as PEM."),
        Limit("revoked_certificates_max", REVOKED_MAX, "certificates", "Revoked certificates of a route."),
        Limit(
            "route_certificate_bytes_max",
            SERVER_CHAIN_BYTES_MAX,
            "bytes",
            "A route's own certificate with those between it and its authority, as PEM.",
        ),
        Limit("route_certificates_max", SERVER_CHAIN_MAX, "certificates", "Of these."),
        Limit("route_private_key_bytes_max", PRIVATE_KEY_BYTES_MAX, "bytes", "Private key of a route's certificate."),
        Limit("route_rsa_bits_max", RSA_BITS_MAX, "bits", "RSA key of a route's certificate, 2,048 at least."),
        Limit(
            "principal_mapping_chars_max",
            MAPPING_RULES_CHARS_MAX,
            "characters",
            "Rules that name the users by certificate of a route.",
        ),
        Limit("principal_mapping_rules_max", RULES_MAX, "rules", "Of these."),
        Limit(
            "principal_mapping_program_max",
            PROGRAM_SIZE_MAX,
            "instructions",
            "Patterns of these rules together, as RE2 compiles them.",
        ),
        Limit(
            "distinguished_name_chars_max",
            DISTINGUISHED_NAME_CHARS_MAX,
            "characters",
            "Subject of a client's certificate; the name that rules make of it is a user's (`user_name_bytes_max`).",
        ),
    )


def _token_limits() -> tuple[Limit, ...]:
    return (
        Limit(
            "token_bytes_max",
            oauth_limits.TOKEN_BYTES_MAX,
            "bytes",
            "What a client sends to sign in with a token (OAUTHBEARER), its extensions included.",
        ),
        Limit("key_set_bytes_max", oauth_limits.KEY_SET_BYTES_MAX, "bytes", "A key set, pinned or at its address."),
        Limit("keys_per_key_set_max", oauth_limits.KEYS_PER_SET_MAX, "keys", "Keys of one set, for whatever purpose."),
        Limit("key_id_bytes_max", oauth_limits.KEY_ID_BYTES_MAX, "bytes", "Id (`kid`) of a key."),
        Limit("rsa_key_bits_min", oauth_limits.RSA_KEY_BITS_MIN, "bits", "Shortest RSA key that proves tokens."),
        Limit("rsa_key_bits_max", oauth_limits.RSA_KEY_BITS_MAX, "bits", "Longest RSA key that proves tokens."),
        Limit(
            "clock_skew_seconds_max", oauth_limits.CLOCK_SKEW_S_MAX, "seconds", "How far an issuer's clock may be off."
        ),
        Limit("key_set_refresh_seconds", oauth_limits.KEY_SET_REFRESH_S, "seconds", "How often a key set is fetched."),
        Limit(
            "key_set_requested_refresh_seconds",
            oauth_limits.KEY_SET_REQUESTED_REFRESH_S,
            "seconds",
            "How soon it may be fetched again because a token names a key that is not in it.",
        ),
    )
