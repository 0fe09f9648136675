"""State that a connection keeps for one client id: its limiters, resolved topics and usage counters.

The state is kept until the metadata changes (`MetadataServices.version`), so that a produce or a fetch finds everything
in one look-up by the bytes of the request.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from functools import partial
from typing import Final

from brokers.contract.acls import AclOperation, ResourceType
from brokers.contract.partitions import NO_LEADER
from brokers.contract.process import MESSAGES_CLIENT_ID
from brokers.engine.access.acls import Rights
from brokers.engine.access.authorizer import Address, Operation, decide
from brokers.engine.cluster.image import TopicImage
from brokers.engine.handlers.context import TenantMetadataView
from brokers.engine.handlers.services import BrokerServices, StorageServices
from brokers.engine.partitions.partition import Partition
from brokers.engine.partitions.topic_settings import CONSUME_BYTE_RATE, NO_LIMIT, PRODUCE_BYTE_RATE
from brokers.engine.protocol.errors import ErrorCode
from brokers.engine.throttling.accounting import InstanceAccounting
from brokers.engine.throttling.charging import (
    CONSUMER_BYTE_RATE,
    PRODUCER_BYTE_RATE,
    REQUEST_PERCENTAGE,
    Limiter,
    LimitsByEntity,
    Quota,
    Rule,
)
from brokers.engine.throttling.refusals import refusal_rule
from brokers.engine.throttling.usage import UsageCounter
from instances.naming import DEMO_CLIENT_ID

_LIMIT_KEYS: Final[dict[Operation, tuple[str, Quota]]] = {
    Operation.PRODUCE: (PRODUCE_BYTE_RATE, PRODUCER_BYTE_RATE),
    Operation.CONSUME: (CONSUME_BYTE_RATE, CONSUMER_BYTE_RATE),
}
# Maximum number of topics cached for each operation: a client may request any number of names on one connection.
RESOLVED_TOPICS_MAX: Final = 10_000
_UNKNOWN: Final = int(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
_DENIED: Final = int(ErrorCode.TOPIC_AUTHORIZATION_FAILED)
_POLICY_VIOLATION: Final = int(ErrorCode.POLICY_VIOLATION)
# Client ids of the control plane whose traffic counts against the instance's limits, although it is not billed.
CHARGED_CLIENT_IDS: Final = frozenset((MESSAGES_CLIENT_ID, DEMO_CLIENT_ID))


def limiter_of(
    services: BrokerServices, accounting: InstanceAccounting, topic: TopicImage, operation: Operation
) -> Limiter | None:
    """Returns the topic's limiter; None if it has no limit, or no partition that clients use on this broker."""
    key, quota = _LIMIT_KEYS[operation]
    value = topic.config.get(key) or services.metadata.topic_defaults.get(key)
    if value is None or value == NO_LIMIT:
        return None
    limit_bps = _limit_bps(value)
    if limit_bps < 1:
        return None
    now_ms = services.clock.monotonic_ms()
    reads_followers = operation is Operation.CONSUME and accounting.shares.reads_followers
    count = _replicas if reads_followers else _leaders
    return accounting.topic_quotas.limiter(
        topic.name, quota, limit_bps, topic, partial(count, topic), services.broker_id, now_ms
    )


def _limit_bps(value: str) -> int:
    """Returns the limit in bytes per second; 0 if the value in ZooKeeper is no number (QUO-75)."""
    try:
        return int(value)
    except ValueError:
        return 0


def _leaders(topic: TopicImage) -> Counter[int]:
    leaders = Counter(partition.leader for partition in topic.partitions)
    leaders.pop(NO_LEADER, None)
    return leaders


def _replicas(topic: TopicImage) -> Counter[int]:
    return Counter(replica for partition in topic.partitions for replica in partition.replicas)


class ResolvedTopic:
    """A topic resolved under the name or id that the client uses. `error` is set if the client may not use it."""

    __slots__ = ("error", "limiter", "partitions", "topic", "usage")

    def __init__(
        self, error: int, topic: TopicImage | None, usage: UsageCounter | None, limiter: Limiter | None = None
    ) -> None:
        self.error = error
        self.topic = topic
        self.usage = usage
        # Limiter of the topic; None without a limit.
        self.limiter = limiter
        self.partitions: dict[int, Partition] = {}

    def find(self, index: int, storage: StorageServices) -> Partition | int:
        """Returns the partition, or the error code of requests for it to this broker."""
        assert self.topic is not None, "a topic that does not exist has an error"
        partition = storage.find(self.topic, index)
        if not isinstance(partition, int):
            self.partitions[index] = partition
        return partition


class ClientContext:
    """Limiters, resolved topics and usage counters of one client id on a connection."""

    __slots__ = (
        "_address", "_services", "accounting", "charged_accounting", "client_id", "consume_limiters", "consume_topics",
        "metadata_version", "produce_limiters", "produce_topics", "request_limiter", "rights", "user", "view",
    )  # fmt: skip

    def __init__(
        self, services: BrokerServices, view: TenantMetadataView, address: Address, client_id: str | None
    ) -> None:
        self.metadata_version = view.metadata_version
        self.view = view
        self.client_id = client_id or ""
        self.user = view.principal.user
        self.rights: Rights = view.rights(services.access.acl_indexes, address)
        self.accounting: InstanceAccounting | None = None
        self.produce_limiters: tuple[Limiter, ...] = ()
        self.consume_limiters: tuple[Limiter, ...] = ()
        # Limiter of the broker's time that the client's requests take; None without a limit.
        self.request_limiter: Limiter | None = None
        self.produce_topics: dict[bytes, ResolvedTopic] = {}
        self.consume_topics: dict[bytes, ResolvedTopic] = {}
        self._services = services
        self._address = address
        # Accounting whose limits apply to this client even if its traffic is not billed.
        self.charged_accounting: InstanceAccounting | None = None
        if view.instance is not None and view.internal and self.client_id in CHARGED_CLIENT_IDS:
            self.charged_accounting = charged_accounting = services.accounting.accountings.get_or_create(
                view.instance.id
            )
            shares = charged_accounting.shares
            self.produce_limiters = () if shares.produce is None else (shares.produce,)
            self.consume_limiters = () if shares.consume is None else (shares.consume,)
            if self.client_id == DEMO_CLIENT_ID:
                quotas = view.image.quotas.of_instance(view.instance.id)
                self.produce_limiters = self._limiters(
                    charged_accounting, quotas, PRODUCER_BYTE_RATE, shares.produce, services.clock.monotonic_ms()
                )
        # Other traffic of the control plane for an instance on the internal listener (probes) is neither billed nor
        # throttled.
        if view.instance is not None and not view.internal:
            instance_id = view.instance.id
            self.accounting = self.charged_accounting = accounting = services.accounting.accountings.get_or_create(
                instance_id
            )
            limits = view.client_limits
            now_ms = services.clock.monotonic_ms()
            self.produce_limiters = self._limiters(
                accounting, limits, PRODUCER_BYTE_RATE, accounting.shares.produce, now_ms
            )
            self.consume_limiters = self._limiters(
                accounting, limits, CONSUMER_BYTE_RATE, accounting.shares.consume, now_ms
            )
            self.request_limiter = accounting.client_quotas.limiter(
                limits, REQUEST_PERCENTAGE, self.user, self.client_id, now_ms
            )

    def _limiters(
        self, accounting: InstanceAccounting, limits: LimitsByEntity, quota: Quota, share: Limiter | None, now_ms: int
    ) -> tuple[Limiter, ...]:
        client_limiter = accounting.client_quotas.limiter(limits, quota, self.user, self.client_id, now_ms)
        return tuple(limiter for limiter in (client_limiter, share) if limiter is not None)

    def record_throttle(self, limiter: Limiter, delay_ms: int, now_ms: int) -> None:
        """Records why this client is throttled. `now_ms` is wall time."""
        self._services.accounting.totals.delays += 1
        # Throttling of the demo client is recorded so that users can see it.
        accounting = self.charged_accounting if self.client_id == DEMO_CLIENT_ID else self.accounting
        if accounting is not None:
            accounting.traffic.record_delay(delay_ms, now_ms)
            if limiter.share_key:
                accounting.client_shares.on_delay(limiter, self._services.clock.monotonic_ms())
            limit_per_s = limiter.limit_per_s if limiter.pool is None else limiter.whole_limit_per_s
            accounting.ledger.record(
                limiter.rule, limit_per_s, self.user, self.client_id, delay_ms, now_ms,
                limiter.whole_limit_per_s,
            )  # fmt: skip

    def record_refusals(self, refusals: Iterable[tuple[int, str | None]], now_ms: int) -> None:
        """Records why partitions of a produce were rejected, given the error code and message of each result."""
        if self.accounting is None:
            return
        counts: dict[Rule, int] = {}
        for code, message in refusals:
            if code == _POLICY_VIOLATION:
                rule = refusal_rule(self.view.state, message)
                counts[rule] = counts.get(rule, 0) + 1
        for rule, count in counts.items():
            self.accounting.record_refusals(rule, self.user, self.client_id, count, now_ms)

    def resolve_produce_topic(self, name: bytes) -> ResolvedTopic:
        """Returns the topic to produce to; `name` is the client's name of it in UTF-8."""
        topic = self.view.namespace.topics.get(name)
        resolved_topic = self._resolve_topic(topic, name, Operation.PRODUCE, AclOperation.WRITE)
        if len(self.produce_topics) < RESOLVED_TOPICS_MAX:
            self.produce_topics[name] = resolved_topic
        return resolved_topic

    def resolve_consume_topic(self, topic_key: bytes, by_id: bool) -> ResolvedTopic:
        """Returns the topic to consume from; `topic_key` is its name, or with `by_id` its id (from Fetch 13 on)."""
        namespace = self.view.namespace
        topic = namespace.topic_by_id(topic_key) if by_id else namespace.topics.get(topic_key)
        name = topic_key
        if by_id:
            # Rights to an unknown id cannot be checked by name.
            name = b"" if topic is None else topic.user_name.encode()
        resolved_topic = self._resolve_topic(topic, name, Operation.CONSUME, AclOperation.READ)
        if by_id and resolved_topic.error == _UNKNOWN:
            resolved_topic.error = int(ErrorCode.UNKNOWN_TOPIC_ID)
        if len(self.consume_topics) < RESOLVED_TOPICS_MAX:
            self.consume_topics[topic_key] = resolved_topic
        return resolved_topic

    def _resolve_topic(
        self, topic: TopicImage | None, name: bytes, operation: Operation, right: AclOperation
    ) -> ResolvedTopic:
        """Resolves a topic by the client's `name`, or without one. A denial does not disclose if the topic exists."""
        error = decide(self.view.state, topic, operation, self._address)
        rights = self.rights
        if name and not rights.is_unrestricted:
            is_allowed = rights.allows(right, ResourceType.TOPIC, name.decode(errors="replace"))
            error = error if is_allowed else _DENIED
        usage = limiter = None
        if topic is not None and self.charged_accounting is not None and not error:
            if self.accounting is not None:
                direction = operation.value
                usage = self.accounting.usage.counter(topic.user_name, self.user, self.client_id, direction)  # type: ignore[arg-type]
            limiter = limiter_of(self._services, self.charged_accounting, topic, operation)
        return ResolvedTopic(error, topic, usage, limiter)
