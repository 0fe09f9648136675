"""docs/ISOLATION.md: of each API and version that tenants are served, what keeps names apart and what a request costs.

Limits, turns, lists and fields come from the code. What needs a sentence is in two tables: `isolation_fields.FIELDS`
says of every text, id and blob of a message what becomes of it, `ROWS` of every API what else bounds it. A field, an
API or a version that is in neither cannot be written, and fails the suite (tests/shape/test_isolation.py).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from textwrap import wrap
from typing import Any, Final, NamedTuple

from brokers.contract import acls as acl_limits
from brokers.contract import audit as audit_events
from brokers.contract import authentication_limits as guesses
from brokers.contract import coordinator_limits as kept
from brokers.contract.acls import ResourceType
from brokers.contract.instance_limits import QUOTA_ENTITIES_MAX, USERS_BYTES_MAX
from brokers.contract.users import USERS_MAX
from brokers.engine.coordinators import limits as groups
from brokers.engine.coordinators import limits as transactions
from brokers.engine.handlers.api_table import API_TABLE, FAST_CODEC_HANDLERS
from brokers.engine.handlers.auth import acls, users
from brokers.engine.handlers.auth.tenant_sasl import AUTHENTICATION_MS_MAX
from brokers.engine.handlers.common import background, long_requests
from brokers.engine.handlers.configs import client_quotas, describe_configs
from brokers.engine.handlers.fetch import legacy as old_fetch
from brokers.engine.handlers.fetch import list_offsets
from brokers.engine.handlers.groups import describe_groups, find_coordinator
from brokers.engine.handlers.offsets import deletion, offsets
from brokers.engine.handlers.produce import request as produce_request
from brokers.engine.handlers.topics import delete_records, metadata, topics
from brokers.engine.handlers.transactions import describing
from brokers.engine.protocol.apis import (
    ADVERTISED_SASL,
    FETCH_BATCHES_FROM,
    PRODUCE_BATCHES_FROM,
    ApiKey,
)
from brokers.engine.protocol.codec import DECODED_AT_ONCE_BYTES_MAX, DECODED_AT_ONCE_ITEMS_MAX
from brokers.engine.protocol.compile_decode import ITEMS_PER_PIECE
from brokers.engine.protocol.fields import fields_of, message_class
from brokers.engine.protocol.framing import UNAUTHENTICATED_FRAME_BYTES_MAX
from brokers.engine.records.validation import DECOMPRESSED_AT_ONCE_BYTES_MAX, DECOMPRESSED_PER_REQUEST_MAX
from brokers.engine.scheduling.permits import (
    DECODED_BYTES_PER_INSTANCE_MAX,
    DELAYED_BYTES_PER_INSTANCE_MAX,
    DELAYED_BYTES_PER_TENANT_MAX,
)
from brokers.engine.throttling.request_time import REQUEST_TIME_PERCENT
from tests.reference.isolation_fields import HANDSHAKE, KINDS, kinds_of
from tests.reference.own_things import OWN, TRIED_APART

K = ApiKey
# What any route serves: those with users have two calls more.
SERVED: Final = ADVERTISED_SASL
BEFORE_ANYBODY_IS_KNOWN: Final = (K.SASL_HANDSHAKE, K.SASL_AUTHENTICATE)
COLUMNS_MAX: Final = 130


class Row(NamedTuple):
    """Guarantees of an API. `versions` are those that it applies to; `bounds` are additional limits."""

    versions: tuple[int, int]
    bounds: tuple[str, ...] = ()
    denied: str = ""


# The tests that attack them, by the word that stands for them.
RANDOM, LONG, INFLATING, NAMES, TORN = "random", "long", "inflating", "names", "torn"
PASSWORDS, FOREIGN = "passwords", "foreign"
ATTACKS: Final[Mapping[str, tuple[str, str]]] = {
    RANDOM: ("tests/adversarial/test_random_requests.py", "random legal requests of any size, in every version"),
    LONG: ("tests/adversarial/test_long_requests.py", "each array as long as it may be"),
    INFLATING: ("tests/adversarial/test_inflating_batches.py", "batches that inflate a thousandfold"),
    NAMES: ("tests/product/system/test_isolation.py", "another instance's names and ids in every field"),
    TORN: ("tests/product/system/test_malformed.py", "requests that end too early or contradict themselves"),
    PASSWORDS: ("tests/adversarial/test_wrong_passwords.py", "10,000 wrong passwords from 100 connections"),
    FOREIGN: (
        TRIED_APART,
        "another instance's users, secrets, rights and TLS tickets, and the cluster's own names",
    ),
}

_GROUP_BOUNDS: Final = (
    f"{kept.GROUPS_PER_INSTANCE_MAX:,} groups of an instance",
    f"{kept.MEMBERS_PER_INSTANCE_MAX:,} members of these",
    f"{kept.MEMBER_BYTES_PER_INSTANCE_MAX >> 20} MiB of them",
)
_OFFSET_BOUNDS: Final = (
    f"{kept.OFFSETS_PER_INSTANCE_MAX:,} offsets of an instance",
    f"{kept.OFFSET_BYTES_PER_INSTANCE_MAX >> 20} MiB of them",
    "what is written is charged as produced",
)
_TRANSACTION_BOUNDS: Final = (
    f"{kept.TRANSACTIONAL_IDS_PER_INSTANCE_MAX:,} ids of an instance",
    "what is written is charged as produced",
)
_TRANSACTION_PARTITIONS: Final = (
    f"{transactions.PARTITIONS_PER_TRANSACTION_MAX:,} partitions of a transaction",
    f"{kept.OPEN_PARTITIONS_PER_INSTANCE_MAX:,} of an instance",
)
_TOPICS: Final = f"{topics.TOPICS_PER_CALL_MAX:,} topics a request"
_PARTITIONS: Final = "the partitions bought"
_CONFIGS: Final = (
    f"{describe_configs.RESOURCES_MAX:,} resources a request, {describe_configs.DESCRIBED_AT_ONCE_MAX} a turn",
)
_LINES: Final = f"{long_requests.ELEMENTS_PER_TURN_MAX} lines a turn"
_REPEATED: Final = f"{long_requests.REPEATED_IDS_MAX} repeated ids"

ROWS: Final[Mapping[ApiKey, tuple[Row, ...]]] = {
    K.PRODUCE: (
        Row((0, 2), ("converted in a thread", f"{DECOMPRESSED_PER_REQUEST_MAX >> 20} MiB inflated a request")),
        Row(
            (3, 11),
            (
                f"batches that inflate to more than {DECOMPRESSED_AT_ONCE_BYTES_MAX >> 10} KiB are checked in a thread",
                f"{DECOMPRESSED_PER_REQUEST_MAX >> 20} MiB inflated a request",
                f"{produce_request.BATCHES_AT_ONCE_MAX} batches a turn, fewer of long ones",
                "the storage bought",
            ),
        ),
    ),
    K.FETCH: (
        Row((0, 3), ("converted in a thread", f"{old_fetch.READ_BYTES_MAX >> 20} MiB of the log an answer")),
        Row(
            (4, 17),
            (
                "the bytes of an answer are limited by the bandwidth",
                "read from disk in threads",
                f"{background.PARTITIONS_PER_TURN_MAX} partitions of a long request a turn",
            ),
        ),
    ),
    K.LIST_OFFSETS: (
        Row((0, 0), (f"{list_offsets.SEGMENTS_PER_RESPONSE_MAX:,} segments an answer",)),
        Row((1, 9), (f"{list_offsets.SEARCHED_AT_ONCE_MAX} searches by time a turn",)),
    ),
    K.METADATA: (
        Row(
            (0, 12),
            (_LINES, f"{metadata.CHECKED_AT_ONCE_MAX} creations checked a request", "each topic answered once"),
        ),
    ),
    K.OFFSET_COMMIT: (Row((0, 0), ("100 groups of an instance in ZooKeeper",)), Row((1, 9), _OFFSET_BOUNDS)),
    K.OFFSET_FETCH: (
        Row((0, 7), (_LINES,)),
        Row((8, 9), (_LINES, f"{offsets.GROUPS_PER_REQUEST_MAX:,} groups a request", _REPEATED)),
    ),
    K.FIND_COORDINATOR: (Row((0, 6), (f"{find_coordinator.KEYS_MAX:,} keys a request",)),),
    K.JOIN_GROUP: (Row((0, 9), (*_GROUP_BOUNDS, f"{groups.MEMBER_METADATA_BYTES_MAX:,} bytes of a member")),),
    K.HEARTBEAT: (Row((0, 4), ("one look-up",)),),
    K.LEAVE_GROUP: (Row((0, 5), (f"{groups.LEAVING_MEMBERS_MAX:,} members a request",)),),
    K.SYNC_GROUP: (Row((0, 5), (f"{groups.GROUP_RECORD_BYTES_MAX:,} bytes of a group's record",)),),
    K.DESCRIBE_GROUPS: (
        Row(
            (0, 5),
            (f"{describe_groups.DESCRIBED_MAX:,} groups a request, {describe_groups.DESCRIBED_PER_TURN_MAX} a turn",),
        ),
    ),
    K.LIST_GROUPS: (Row((0, 5), _GROUP_BOUNDS[:1]),),
    K.SASL_HANDSHAKE: (Row((0, 1), ("a constant",)),),
    K.API_VERSIONS: (Row((0, 4), ("a constant",)),),
    K.CREATE_TOPICS: (Row((2, 7), (_TOPICS, _PARTITIONS, "one topic a turn")),),
    K.DELETE_TOPICS: (Row((1, 6), (_TOPICS, "one change in ZooKeeper at a time")),),
    K.DELETE_RECORDS: (Row((0, 2), (f"waits {delete_records.FOLLOWERS_MS_MAX // 1000} s for followers",)),),
    K.INIT_PRODUCER_ID: (Row((0, 5), _TRANSACTION_BOUNDS),),
    K.OFFSET_FOR_LEADER_EPOCH: (Row((0, 4), ("out of memory",)),),
    K.ADD_PARTITIONS_TO_TXN: (
        Row((0, 3), _TRANSACTION_PARTITIONS),
        Row((4, 5), denied="asked by brokers alone: CLUSTER_AUTHORIZATION_FAILED"),
    ),
    K.ADD_OFFSETS_TO_TXN: (Row((0, 4), _TRANSACTION_PARTITIONS[:1]),),
    K.END_TXN: (Row((0, 4), ("a marker for each partition of the transaction",)),),
    K.TXN_OFFSET_COMMIT: (Row((0, 4), _OFFSET_BOUNDS),),
    K.DESCRIBE_ACLS: (Row((0, 3), (f"{acl_limits.ENTRIES_MAX:,} entries of an instance",)),),
    K.CREATE_ACLS: (
        Row(
            (0, 3),
            (
                f"{acls.CREATIONS_MAX:,} entries a request, {acl_limits.ENTRIES_MAX:,} and "
                f"{acl_limits.ACL_BYTES_MAX >> 10} KiB of an instance",
                _LINES,
                "each a change in ZooKeeper",
            ),
        ),
    ),
    K.DELETE_ACLS: (Row((0, 3), (f"{acls.FILTERS_MAX:,} filters a request", _LINES, "each a change in ZooKeeper")),),
    K.DESCRIBE_CONFIGS: (Row((1, 4), _CONFIGS),),
    K.ALTER_CONFIGS: (Row((0, 2), _CONFIGS),),
    K.DESCRIBE_LOG_DIRS: (Row((0, 4), (_PARTITIONS,)),),
    K.SASL_AUTHENTICATE: (
        Row(
            (0, 2),
            (
                f"{UNAUTHENTICATED_FRAME_BYTES_MAX >> 10} KiB a frame",
                f"{AUTHENTICATION_MS_MAX // 1000} s until it is proven",
                "one password is hashed at a time, in a thread, instance after instance",
                f"{guesses.USER_FAILURES_BURST} wrong ones of a user and an address, "
                f"{guesses.ADDRESS_FAILURES_BURST} of an address",
            ),
        ),
    ),
    K.CREATE_PARTITIONS: (Row((0, 3), (_PARTITIONS, _LINES)),),
    K.DELETE_GROUPS: (
        Row((0, 2), (f"{deletion.GROUPS_PER_REQUEST_MAX:,} groups a request, {deletion.GROUPS_AT_ONCE} at once",)),
    ),
    K.INCREMENTAL_ALTER_CONFIGS: (Row((0, 1), _CONFIGS),),
    K.OFFSET_DELETE: (Row((0, 0), ("one append of 256 KB of keys at a time",)),),
    K.DESCRIBE_CLIENT_QUOTAS: (Row((0, 1), (f"{QUOTA_ENTITIES_MAX:,} entities of an instance",)),),
    K.ALTER_CLIENT_QUOTAS: (
        Row((0, 1), (f"{client_quotas.ENTRIES_MAX:,} entries a request", f"{QUOTA_ENTITIES_MAX:,} entities")),
    ),
    K.DESCRIBE_USER_SCRAM_CREDENTIALS: (Row((0, 0), (f"{USERS_MAX:,} users of an instance", _LINES)),),
    K.ALTER_USER_SCRAM_CREDENTIALS: (
        Row(
            (0, 0),
            (
                f"{users.USERS_PER_REQUEST_MAX:,} users a request",
                f"{USERS_MAX:,} of an instance",
                f"{USERS_BYTES_MAX >> 10} KiB of them",
                "one change in ZooKeeper at a time",
            ),
        ),
    ),
    K.DESCRIBE_CLUSTER: (Row((0, 1), ("the instance's brokers",)),),
    K.DESCRIBE_PRODUCERS: (Row((0, 0), (_LINES, f"{describing.PRODUCERS_PER_RESPONSE_MAX:,} producers an answer")),),
    K.DESCRIBE_TRANSACTIONS: (
        Row(
            (0, 0),
            (
                f"{describing.IDS_PER_REQUEST_MAX:,} ids a request",
                _REPEATED,
            ),
        ),
    ),
    K.LIST_TRANSACTIONS: (Row((0, 1), _TRANSACTION_BOUNDS),),
}


def has_arrays(cls: type[Any], version: int) -> bool:
    return any(spec.kind == "array" and spec.exists(version) and spec.tag is None for _, spec, _ in fields_of(cls))


def attacks_on(api_key: ApiKey) -> list[str]:
    """Which of `ATTACKS` send requests of this API, in all of its versions."""
    if api_key in BEFORE_ANYBODY_IS_KNOWN:
        return [PASSWORDS, FOREIGN]
    is_long = has_arrays(message_class(api_key, "request"), SERVED[api_key][1])
    return [RANDOM, *([LONG] if is_long else []), NAMES, TORN, *([INFLATING] if api_key is K.PRODUCE else [])]


def isolation_page_parts(table: Callable[[Sequence[str], Iterable[Sequence[str]]], str]) -> list[str]:
    kinds = ([f"**{name}**", way, text] for name, (way, text) in KINDS.items())
    return [
        _wrapped(
            "Tenants share brokers. Of each API that a tenant's port serves this page says what keeps its names apart",
            "from those of others, and what bounds the cost of a request. [Security](explanation/SECURITY.md) says",
            "whom we trust with what.",
        ),
        "## What names are\n",
        _wrapped(
            "Every text, id and blob of a request or an answer is one of these. The port decides the instance; nothing",
            "in a request can.",
        ),
        table(["kind", "kept apart", "how"], kinds),
        _wrapped(
            "Numbers are the cluster's: producer ids, broker ids, epochs. A producer id of another instance opens",
            "nothing, since partitions and transactional ids are the instance's own.",
        ),
        "## What a client shows before its first request\n",
        table(["kind", "kept apart", "how"], [[f"**{name}**", how, text] for name, (how, text) in HANDSHAKE.items()]),
        "## What every request costs\n",
        *(_wrapped(f"* {bound}") for bound in _common_bounds()),
        "\n## The attacks\n",
        *(_wrapped(f"* *{word}*: {text} (`{path}`)") for word, (path, text) in ATTACKS.items()),
        "\n## What is an instance's own\n",
        table(["what", "kept apart by", "tried in"], ([what, how, f"`{path}`"] for what, how, path in OWN)),
        "## Each API\n",
        _wrapped(
            "*Rights*: what is asked of the principal where the instance has access control entries, by resource.",
            "*List*: which allow-list of a topic is asked. *Turns*: how often others come in between.",
        ),
        *_sections(),
    ]


def _wrapped(*sentences: str) -> str:
    text = " ".join(sentences)
    indent = "  " if text.startswith("* ") else ""
    return "\n".join(
        wrap(text, COLUMNS_MAX, subsequent_indent=indent, break_long_words=False, break_on_hyphens=False)
    ) + ("" if indent else "\n")


def _common_bounds() -> list[str]:
    return [
        "A frame over the API's bytes is not received, one over its items is not decoded: the connection is closed.",
        f"Over {DECODED_AT_ONCE_BYTES_MAX >> 10} KiB, or where it may have over {DECODED_AT_ONCE_ITEMS_MAX:,} items, "
        f"it is decoded in pieces of {ITEMS_PER_PIECE} items, if the API has no decoder of its own (Produce, Fetch). "
        f"Of an instance so many bytes of requests are decoded at a time: {DECODED_BYTES_PER_INSTANCE_MAX:,}. "
        f"Fetches of {DELAYED_BYTES_PER_INSTANCE_MAX >> 20} MiB wait for records, and of a tenant "
        f"{DELAYED_BYTES_PER_TENANT_MAX >> 20} MiB; more are answered at once.",
        "Of all pieces of long requests one is done in each round of the event loop, instance after instance.",
        f"Answers over {long_requests.ELEMENTS_AT_ONCE_MAX:,} lines are encoded in pieces.",
        f"The time it takes is charged to the instance, which may use {REQUEST_TIME_PERCENT} % of a broker's. Produce "
        "and Fetch are charged in bytes of the bandwidth bought.",
        "Turns of the event loop over 10 ms are counted by API and instance.",
    ]


def _sections() -> Iterator[str]:
    for api_key in sorted(SERVED):
        for row in ROWS[api_key]:
            yield _section(api_key, row)


def _section(api_key: ApiKey, row: Row) -> str:
    low, high = row.versions
    title = "".join(word.capitalize() for word in api_key.name.split("_"))
    limit, asked = API_TABLE[api_key].limit, API_TABLE[api_key].allow_list
    shown = f" {low}" if low == high else f"s {low} to {high}"
    lines = []
    if row.denied:
        lines.append(f"Denied: {row.denied}.")
    else:
        for kind, names in kinds_of(api_key, row.versions).items():
            lines.append(f"{KINDS[kind][0].capitalize()}, as {kind}: {', '.join(f'`{name}`' for name in names)}")
    lines.append(f"Rights: {_rights(api_key)}")
    lines.append(f"List: {'none' if asked.operation is None else asked.operation.value} ({asked.explanation})")
    size = f"{limit.bytes_max >> 20} MiB" if limit.bytes_max >= 1 << 20 else f"{limit.bytes_max >> 10} KiB"
    lines.append(f"A request: {size}, {limit.items_max:,} items; {_price(api_key)}")
    if row.bounds:
        lines.append(f"Beside that: {'; '.join(row.bounds)}")
    if API_TABLE[api_key].audit is not None:
        lines.append(f"In the audit log: {audit_events.ITEMS_MAX} things a request at most, the rest counted")
    lines.append(f"Turns: {_turns(api_key, row)}")
    lines.append(f"Attacked: {', '.join(attacks_on(api_key))}")
    return "\n".join([f"### {title}, version{shown}\n", *(_wrapped(f"* {line}") for line in lines), ""])


def _rights(api_key: ApiKey) -> str:
    required = API_TABLE[api_key].rights
    asked = [f"{operation.name} on {_words(kind)}" for kind, operation in required.operations.items()]
    also = [f"{operation.name} on {_words(kind)}" for operation, kind in required.other_operations]
    named = ", ".join(asked) or "none"
    beside = f", beside that {', '.join(also)}" if also else ""
    return f"{named}{beside} ({required.explanation})"


def _words(kind: ResourceType) -> str:
    return kind.name.lower().replace("_", " ")


def _price(api_key: ApiKey) -> str:
    if api_key in BEFORE_ANYBODY_IS_KNOWN:
        return "not paid, for nobody is known yet"
    return "paid in bandwidth" if api_key in FAST_CODEC_HANDLERS else "paid in request time"


def _turns(api_key: ApiKey, row: Row) -> str:
    if API_TABLE[api_key].split is not None:
        return _LINES
    of_row = [bound for bound in row.bounds if "turn" in bound or "at a time" in bound or "at once" in bound]
    if of_row:
        return "; ".join(of_row)
    is_old = (api_key is K.PRODUCE and row.versions[1] < PRODUCE_BATCHES_FROM) or (
        api_key is K.FETCH and row.versions[1] < FETCH_BATCHES_FROM
    )
    return "one, and a thread" if is_old else "one"
