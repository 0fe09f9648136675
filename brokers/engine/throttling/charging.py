"""Limiters (limits with their counters) and the functions that charge them (QUO-7, QUO-14, QUO-20, QUO-22, CKA-25)."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from hashlib import sha256
from types import MappingProxyType
from typing import Final, Literal, NamedTuple, Protocol

from brokers.contract.usage import NAME_CHARACTERS_MAX
from brokers.engine.throttling.pool import Pool, part_burst_ms
from brokers.engine.throttling.quota_callback import CustomLimit
from quotas import pacing, precedence, throttle
from quotas.pacing import BURST_MS, Pace
from quotas.rates import SAMPLE_SETTINGS, Rate, SampleSettings
from quotas.token_bucket import TokenBucket

UNUSED_MS_MAX: Final = 3_600_000
# Beyond this, further sharing groups of an instance share one counter, so that invented client ids cannot use up
# memory.
LIMITERS_PER_INSTANCE_MAX: Final = 10_000
OTHERS: Final = "(other)"
# User in the key of a limiter that a callback decided; names of users cannot contain this character.
BY_CALLBACK: Final = "\0callback"

PRODUCER_BYTE_RATE: Final = "producer_byte_rate"
CONSUMER_BYTE_RATE: Final = "consumer_byte_rate"
REQUEST_PERCENTAGE: Final = "request_percentage"
CONTROLLER_MUTATION_RATE: Final = "controller_mutation_rate"
BYTE_RATES: Final = (PRODUCER_BYTE_RATE, CONSUMER_BYTE_RATE)
# Time is counted in nanoseconds; this many per second are one percent of a broker's event loop.
NS_PER_PERCENT: Final = 10_000_000
NS_PER_S: Final = 1_000_000_000

Quota = Literal["producer_byte_rate", "consumer_byte_rate", "request_percentage", "controller_mutation_rate"]
LimitsByEntity = Mapping[precedence.Entity, Mapping[str, float]]
# Function of quota, user and client id that returns a callback's limit, None if the client quotas apply.
LimitCallback = Callable[[str, str, str], CustomLimit | None]


class Rule(NamedTuple):
    """The rule by which a client is delayed, or a connection or a produce refused.

    `level` and `entity` identify a client quota (QUO-2); they are None for other limits.
    """

    kind: Literal[
        "client_quota",
        "topic_quota",
        "instance_bandwidth",
        "request_time",
        "change_rate",
        "connection_limit",
        "connection_rate",
        "authentication",
        "capacity",
        "frozen",
    ]
    quota: (
        Quota
        | Literal[
            "request_time",
            "change_rate",
            "connection_limit",
            "connection_rate",
            "connection_creation_rate",
            "authentication",
        ]
        | Literal["storage", "disk_space", "frozen"]
    )
    level: int | None
    entity: precedence.Entity | None


class DebtWatcher(Protocol):
    """Observer of a limiter's debt, which ends waits when it is paid; `waits.LimiterQueue` implements it."""

    def on_debt_changed(self, now_ms: int) -> None:
        """The debt may be smaller than before."""

    def end_all_waits(self) -> None:
        """The limits may have changed, so all waits end."""


class Limiter:
    """A limit with its counter, in the unit of its quota.

    All connections of a sharing group share one limiter. A change of the limit keeps the samples (QUO-7).

    Attributes:
        limit_per_s: this broker's part of `whole_limit_per_s`.
        whole_limit_per_s: the limit as bought or set, for all brokers together.
        pace: the pace beside Kafka's window. With None the window applies alone, which admits ten seconds' worth at
            once.
        pool: the shared pace of the whole limit. With a pool a client waits only while both this broker's part and the
            whole limit are in debt.
        share_key: name of the limit among the brokers, "" if it is not shared.
        admitted_bytes: all bytes that were charged; it only grows.
        waited_ms: total time that clients waited for this limit, up to `waits_until_ms`.
        waits_until_ms: end of the latest wait, which may be in the future.
        owed_until_ms: no debt lasts longer than this.
        unrecorded_s: time spent that the next `record_time` adds, for a limit of time.
        bucket: the token bucket of a `controller_mutation_rate` (QUO-40).
        debt_watcher: is notified when the debt becomes smaller.
    """

    __slots__ = (
        "admitted_bytes",
        "bucket",
        "debt_watcher",
        "last_used_ms",
        "limit_per_s",
        "owed_until_ms",
        "pace",
        "pool",
        "rate",
        "rule",
        "share_key",
        "unrecorded_s",
        "waited_ms",
        "waits_until_ms",
        "whole_limit_per_s",
    )

    def __init__(
        self,
        rule: Rule,
        limit_per_s: float,
        now_ms: int,
        pace: Pace | None = None,
        window: SampleSettings = SAMPLE_SETTINGS,
    ) -> None:
        self.rule = rule
        self.limit_per_s = limit_per_s
        self.whole_limit_per_s = limit_per_s
        self.last_used_ms = now_ms
        self.rate = Rate(window)
        self.pace = pace
        self.unrecorded_s = 0.0
        self.bucket: TokenBucket | None = None
        if rule.quota == CONTROLLER_MUTATION_RATE:
            self.bucket = TokenBucket(limit_per_s, self._burst_tokens(limit_per_s))
        self.share_key = ""
        self.admitted_bytes = 0
        self.waited_ms = 0
        self.waits_until_ms = now_ms
        self.owed_until_ms = now_ms
        self.pool: Pool | None = None
        self.debt_watcher: DebtWatcher | None = None

    def set_limit(self, limit_per_s: float, now_ms: int, whole_limit_per_s: float | None = None) -> None:
        """Sets a new limit. If only this broker's part of an unchanged whole limit changes, the samples are scaled, so
        that admitted bytes use up the same fraction of the new part as of the old one.
        """
        whole_per_s = limit_per_s if whole_limit_per_s is None else whole_limit_per_s
        previous_per_s = self.limit_per_s
        if limit_per_s == previous_per_s and whole_per_s == self.whole_limit_per_s:
            return
        if self.pace is not None and limit_per_s > previous_per_s:
            self.pace.convert_debt(previous_per_s, limit_per_s, now_ms)
        if self.bucket is not None:
            self.bucket.change(limit_per_s, self._burst_tokens(limit_per_s))
        if whole_per_s == self.whole_limit_per_s and whole_limit_per_s is not None and previous_per_s > 0:
            self.rate.scale(limit_per_s / previous_per_s)
        self.limit_per_s = limit_per_s
        self.whole_limit_per_s = whole_per_s
        if limit_per_s > previous_per_s:
            self.on_debt_changed(now_ms)

    def use_pool(self, pool: Pool | None) -> None:
        """Attaches the pool by which brokers share the whole limit; with None this broker's part applies alone."""
        if self.pool is pool:
            return
        pace = self.pace
        if self.pool is not None:
            self.pool.on_answer = None
            if pace is not None:
                pace.burst_ms = self.pool.burst_ms
        self.pool = pool
        if pool is not None:
            pool.on_answer = self.on_debt_changed
            if pace is not None:
                pace.burst_ms = part_burst_ms(pool.burst_ms)

    def charge(self, amount: int, now_ms: int) -> int:
        """Records an admitted amount and returns the delay that it causes, in milliseconds."""
        self.last_used_ms = now_ms
        self.admitted_bytes += amount
        pace, pool = self.pace, self.pool
        if pool is not None and pace is not None:
            if pace.due_ms > now_ms and pool.debt_ms(now_ms) == 0:
                pace.cancel_debt(now_ms)
            pool.charge(amount)
            delay_ms = pace.charge(amount, self.limit_per_s, now_ms)
            if delay_ms > 0:
                pool.mark_contended(now_ms)
                delay_ms = min(delay_ms, pool.debt_ms(now_ms))
        else:
            delay_ms = throttle.charge(self.rate, amount, self.limit_per_s, now_ms)
            if pace is not None:
                paced_ms = pace.charge(amount, self.limit_per_s, now_ms)
                if paced_ms > delay_ms:
                    delay_ms = paced_ms
        if now_ms + delay_ms > self.owed_until_ms:
            self.owed_until_ms = now_ms + delay_ms
        return delay_ms

    def debt_ms(self, now_ms: int, excluded_amount: int = 0) -> int:
        """Returns the time until all recorded units but the last `excluded_amount` are paid for, in milliseconds."""
        excluded_ms = int(excluded_amount * 1000 / self.limit_per_s) if excluded_amount and self.limit_per_s > 0 else 0
        pace, pool = self.pace, self.pool
        if pool is not None and pace is not None:
            debt_ms = pace.debt_ms(now_ms + excluded_ms)
            return min(debt_ms, pool.debt_ms(now_ms, excluded_amount)) if debt_ms else 0
        debt_ms = max(0, throttle.delay_ms(self.rate, self.limit_per_s, now_ms) - excluded_ms)
        return debt_ms if pace is None else max(debt_ms, pace.debt_ms(now_ms + excluded_ms))

    def fetch_debt_ms(self, amount: int, now_ms: int) -> int:
        """Returns the delay of a response of `amount` bytes in milliseconds, without recording it (QUO-20).

        With a pace, only the debt of earlier responses counts, and this one may run into debt itself. Kafka's window
        alone counts this response as well.
        """
        self.last_used_ms = now_ms
        if self.pace is not None:
            return self.debt_ms(now_ms)
        delay_ms = throttle.charge(self.rate, amount, self.limit_per_s, now_ms)
        self.rate.record(-amount, now_ms)
        return delay_ms

    def on_debt_changed(self, now_ms: int) -> None:
        """Adjusts the end of the waits after the debt has changed, and notifies `debt_watcher`."""
        ends_ms = now_ms + self.debt_ms(now_ms)
        if ends_ms > self.owed_until_ms:
            self.owed_until_ms = ends_ms
        if now_ms <= ends_ms < self.waits_until_ms:
            self.waited_ms -= self.waits_until_ms - ends_ms
            self.waits_until_ms = ends_ms
        if self.debt_watcher is not None:
            self.debt_watcher.on_debt_changed(now_ms)

    def record_wait(self, delay_ms: int, now_ms: int) -> None:
        """Adds a client's wait to `waited_ms`; time in which other clients wait as well counts once."""
        begins_ms = self.waits_until_ms if self.waits_until_ms > now_ms else now_ms
        ends_ms = now_ms + delay_ms
        if ends_ms > begins_ms:
            self.waited_ms += ends_ms - begins_ms
            self.waits_until_ms = ends_ms

    def _burst_tokens(self, limit_per_s: float) -> float:
        """Returns the tokens of a full bucket: the units that the limit allows in a whole window."""
        return limit_per_s * self.rate.count * self.rate.width_ms / 1000


def charge(limiters: Sequence[Limiter], amount_bytes: int, now_ms: int) -> tuple[int, Limiter | None]:
    """Charges `amount_bytes` to all limiters; returns the longest delay and its limiter (QUO-22, CKA-25).

    `now_ms` is monotonic.
    """
    longest_ms, longest_limiter = 0, None
    for limiter in limiters:
        delay_ms = limiter.charge(amount_bytes, now_ms)
        if delay_ms > longest_ms:
            longest_ms, longest_limiter = delay_ms, limiter
    if longest_limiter is not None:
        longest_limiter.record_wait(longest_ms, now_ms)
    return longest_ms, longest_limiter


def charge_fetch(
    charges: Sequence[tuple[Limiter, int]], now_ms: int, is_delayed: bool = False
) -> tuple[int, Limiter | None]:
    """Charges a fetch response unless it has to wait (QUO-20); returns the longest delay and its limiter.

    `charges` are the limiters with the bytes that count for each. With `is_delayed` the response waits for another
    reason and is not charged either.
    """
    longest_ms, longest_limiter = 0, None
    for limiter, amount_bytes in charges:
        delay_ms = limiter.fetch_debt_ms(amount_bytes, now_ms)
        if delay_ms > longest_ms:
            longest_ms, longest_limiter = delay_ms, limiter
    if longest_limiter is not None:
        longest_limiter.record_wait(longest_ms, now_ms)
    elif not is_delayed:
        for limiter, amount_bytes in charges:
            limiter.charge(amount_bytes, now_ms)
    return longest_ms, longest_limiter


def find_longest_debt(limiters: Sequence[Limiter], now_ms: int) -> Limiter | None:
    """Returns the limiter with the longest debt, None if no limiter is in debt.

    Limiters without a pace are skipped: under Kafka's window a debt delays only the connection that caused it.
    """
    longest_ms, longest_limiter = 0, None
    for limiter in limiters:
        if limiter.owed_until_ms > now_ms and limiter.pace is not None:
            debt_ms = limiter.debt_ms(now_ms)
            if debt_ms > longest_ms:
                longest_ms, longest_limiter = debt_ms, limiter
            elif not debt_ms:
                limiter.owed_until_ms = now_ms
    return longest_limiter


def fetch_cap_bytes(limiters: Sequence[Limiter], wanted_bytes: int) -> int:
    """Returns the maximum size of one fetch response, at most `wanted_bytes` (QUO-19)."""
    for limiter in limiters:
        cap = throttle.fetch_cap_bytes(limiter.rate, limiter.limit_per_s)
        if limiter.pace is not None:
            cap = min(cap, pacing.fetch_cap_bytes(limiter.limit_per_s))
        wanted_bytes = min(wanted_bytes, cap)
    return wanted_bytes


def record_time(limiter: Limiter, spent_s: float, now_ms: int) -> None:
    """Records the time that requests took of the event loop (QUO-21)."""
    limiter.last_used_ms = now_ms
    limiter.rate.record(int((spent_s + limiter.unrecorded_s) * NS_PER_S), now_ms)
    limiter.unrecorded_s = 0.0


def time_delay_ms(limiter: Limiter, now_ms: int) -> int:
    """Returns the delay for recorded time in milliseconds, one window at most (QUO-17)."""
    delay_ms = throttle.delay_ms(limiter.rate, limiter.limit_per_s * NS_PER_PERCENT, now_ms)
    return min(delay_ms, limiter.rate.width_ms)


def new_pace(burst_ms: int) -> Pace | None:
    """Makes the pace of a limiter; None for a negative burst, with which Kafka's window applies alone."""
    return Pace(burst_ms) if burst_ms >= 0 else None


class LimitParts(Protocol):
    """This broker's part of the client quotas of an instance; `client_shares.ClientShares` implements it."""

    def apply(self, quota: str, key: tuple[str, str, str], limiter: Limiter, limit_per_s: float, now_ms: int) -> None:
        """Sets this broker's part of the limit on the limiter."""


class ClientQuotas:
    """Client quotas of one instance: a limiter per sharing group and quota (QUO-3)."""

    def __init__(
        self,
        burst_ms: int = BURST_MS,
        window: SampleSettings = SAMPLE_SETTINGS,
        controller_window: SampleSettings = SAMPLE_SETTINGS,
        callback: LimitCallback | None = None,
        client_id_defaults: Mapping[str, float] = MappingProxyType({}),
    ) -> None:
        self._callback = callback
        self._client_id_defaults = client_id_defaults
        self._burst_ms = burst_ms
        self._window = window
        self._controller_window = controller_window
        self._limiters: dict[tuple[str, str, str], Limiter] = {}
        self._indexed_limits: LimitsByEntity | None = None
        self._quotas_in_use: frozenset[str] = frozenset()
        # Applies this broker's part of a byte rate; with None the whole limit applies here.
        self.parts: LimitParts | None = None

    def __len__(self) -> int:
        return len(self._limiters)

    def is_set(self, limits: LimitsByEntity, quota: Quota) -> bool:
        """True if any client may have a limit of this quota; computed once per `limits` object."""
        if self._callback is not None or quota in self._client_id_defaults:
            return True
        if limits is not self._indexed_limits:
            self._quotas_in_use = frozenset(name for limits_of_entity in limits.values() for name in limits_of_entity)
            self._indexed_limits = limits
        return quota in self._quotas_in_use

    def limiter(
        self, limits: LimitsByEntity, quota: Quota, user: str, client_id: str, now_ms: int, part: float = 1.0
    ) -> Limiter | None:
        """Returns the limiter of a client, updated to `limits`; None if the client is unlimited.

        `part` is this broker's part of quotas that are not byte rates.
        """
        custom = None if self._callback is None else self._callback(quota, user, client_id)
        if custom is not None:
            if custom.limit is None:
                return None
            rule = Rule("client_quota", quota, None, None)
            limit_per_s, key = custom.limit, (quota, BY_CALLBACK, custom.group)
        else:
            match = precedence.resolve(limits, quota, user, client_id)
            if match is not None:
                rule = Rule("client_quota", quota, match.level, match.entity)
                limit_per_s = match.limit
                key = (quota, *precedence.sharing_group(match.level, user, _bounded_client_id(client_id)))
            elif client_id and quota in self._client_id_defaults:
                rule = Rule("client_quota", quota, None, None)
                limit_per_s = self._client_id_defaults[quota]
                key = (quota, "", _bounded_client_id(client_id))
            else:
                return None
        limiter = self._limiters.get(key)
        if limiter is None:
            if len(self._limiters) >= LIMITERS_PER_INSTANCE_MAX:
                key = (quota, OTHERS, OTHERS)
                limiter = self._limiters.get(key)
            if limiter is None:
                limiter = self._limiters[key] = self._make_limiter(rule, quota, limit_per_s, now_ms)
        if self.parts is None or quota not in BYTE_RATES:
            limiter.set_limit(limit_per_s * part, now_ms, limit_per_s)
        else:
            self.parts.apply(quota, key, limiter, limit_per_s, now_ms)
        limiter.rule, limiter.last_used_ms = rule, now_ms
        return limiter

    def _make_limiter(self, rule: Rule, quota: Quota, limit_per_s: float, now_ms: int) -> Limiter:
        """Makes a limiter; only byte rates have a pace beside Kafka's window."""
        pace = new_pace(self._burst_ms) if quota in BYTE_RATES else None
        window = self._controller_window if quota == CONTROLLER_MUTATION_RATE else self._window
        return Limiter(rule, limit_per_s, now_ms, pace, window)

    def release_waits(self) -> None:
        """Ends all waits, so that clients are charged again under changed limits."""
        for limiter in self._limiters.values():
            if limiter.debt_watcher is not None:
                limiter.debt_watcher.end_all_waits()

    def drop_unused(self, now_ms: int) -> int:
        """Drops limiters that were not used for an hour and returns their number (QUO-8).

        If it is not 0, callers that keep references to limiters must look them up again.
        """
        unused = [key for key, limiter in self._limiters.items() if now_ms - limiter.last_used_ms >= UNUSED_MS_MAX]
        for key in unused:
            del self._limiters[key]
        return len(unused)


def _bounded_client_id(client_id: str) -> str:
    """Returns the client id, or the digest of one that is too long to be kept in memory."""
    return client_id if len(client_id) <= NAME_CHARACTERS_MAX else sha256(client_id.encode()).hexdigest()
