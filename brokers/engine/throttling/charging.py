"""Limits with their counters, and the one function that charges them (QUO-7, QUO-14, QUO-20, QUO-22, CKA-25)."""

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
from quotas.rates import WINDOW, Rate, Window
from quotas.token_bucket import TokenBucket

UNUSED_MS_MAX: Final = 3_600_000
# A client that invents client ids cannot make the broker grow: beyond this, groups of one instance share a counter.
LIMITERS_PER_INSTANCE_MAX: Final = 10_000
OTHERS: Final = "(other)"
# In place of a user, which has no such character.
BY_CALLBACK: Final = "\0callback"

PRODUCER_BYTE_RATE: Final = "producer_byte_rate"
CONSUMER_BYTE_RATE: Final = "consumer_byte_rate"
REQUEST_PERCENTAGE: Final = "request_percentage"
CONTROLLER_MUTATION_RATE: Final = "controller_mutation_rate"
BYTE_RATES: Final = (PRODUCER_BYTE_RATE, CONSUMER_BYTE_RATE)
# Time is counted in nanoseconds: so many a second are one percent of a broker's event loop.
NS_PER_PERCENT: Final = 10_000_000
NS_PER_S: Final = 1_000_000_000

Quota = Literal["producer_byte_rate", "consumer_byte_rate", "request_percentage", "controller_mutation_rate"]
LimitsByEntity = Mapping[precedence.Entity, Mapping[str, float]]
# Quota, user, client id: the answer of somebody else's code, None where it has none.
AskCallback = Callable[[str, str, str], CustomLimit | None]


class Rule(NamedTuple):
    """Why somebody waits, or is refused a connection or a produce. `level` and `entity` are those of a client quota
    (QUO-2), None for what is the instance's, or the operator's: of a callback, or a default of the broker.
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
    """Waits that end when a limiter's debt is paid; `waits.LimiterQueue` fits."""

    def debt_changed(self, now_ms: int) -> None:
        """Less may be owed than before."""

    def release(self) -> None:
        """Other limits may hold now."""


class Limiter:
    """A counter under one limit, in the unit of its quota. Connections of the same group share it; a changed limit
    keeps the samples (QUO-7). `pace` None: Kafka's window alone, which lets ten seconds' worth through at once.

    `limit_per_s` is this broker's part of `whole_limit_per_s`, which was bought or set for all brokers together. With
    a `pool`, a client waits until either this broker's part or the whole limit has paid for what was admitted.
    `share_key` names the limit among the brokers, "" where it is not shared. `admitted_bytes` and `waited_ms` only
    grow: what passed, and for how long clients waited for this limit (up to `waits_until_ms`, which may be ahead of
    the clock). Before `owed_until_ms` something may be owed. `waiting` is notified when less is owed than before.
    """

    __slots__ = (
        "admitted_bytes",
        "bucket",
        "limit_per_s",
        "owed_until_ms",
        "pace",
        "pool",
        "rate",
        "rule",
        "share_key",
        "unrecorded_s",
        "used_ms",
        "waited_ms",
        "waiting",
        "waits_until_ms",
        "whole_limit_per_s",
    )

    def __init__(
        self, rule: Rule, limit_per_s: float, now_ms: int, pace: Pace | None = None, window: Window = WINDOW
    ) -> None:
        self.rule = rule
        self.limit_per_s = limit_per_s
        self.whole_limit_per_s = limit_per_s
        self.used_ms = now_ms
        self.rate = Rate(window.samples, window.width_ms)
        self.pace = pace
        # Of a limit of time: what was spent since `record_time`, which comes with it next time.
        self.unrecorded_s = 0.0
        # What a rate of changes is counted with instead (QUO-40).
        self.bucket: TokenBucket | None = None
        if rule.quota == CONTROLLER_MUTATION_RATE:
            self.bucket = TokenBucket(limit_per_s, self._burst(limit_per_s))
        self.share_key = ""
        self.admitted_bytes = 0
        self.waited_ms = 0
        self.waits_until_ms = now_ms
        self.owed_until_ms = now_ms
        self.pool: Pool | None = None
        self.waiting: DebtWatcher | None = None

    def limit(self, limit_per_s: float, now_ms: int, whole_limit_per_s: float | None = None) -> None:
        """Puts another limit in force. Where only this broker's share gets smaller, what was admitted under the one
        before counts as the same part of this one.
        """
        whole = limit_per_s if whole_limit_per_s is None else whole_limit_per_s
        before = self.limit_per_s
        if limit_per_s == before and whole == self.whole_limit_per_s:
            return
        if self.pace is not None and limit_per_s > before:
            self.pace.raised(before, limit_per_s, now_ms)
        if self.bucket is not None:
            self.bucket.change(limit_per_s, self._burst(limit_per_s))
        if whole == self.whole_limit_per_s and whole_limit_per_s is not None and before > 0:
            self.rate.scale(limit_per_s / before)
        self.limit_per_s = limit_per_s
        self.whole_limit_per_s = whole
        if limit_per_s > before:
            self.debt_changed(now_ms)

    def use_pool(self, pool: Pool | None) -> None:
        """Shares the whole limit with other brokers from here on; None: this broker's part holds alone."""
        if self.pool is pool:
            return
        pace = self.pace
        if self.pool is not None:
            self.pool.on_answer = None
            if pace is not None:
                pace.burst_ms = self.pool.burst_ms
        self.pool = pool
        if pool is not None:
            pool.on_answer = self.debt_changed
            if pace is not None:
                pace.burst_ms = part_burst_ms(pool.burst_ms)

    def charge(self, amount: int, now_ms: int) -> int:
        """Records an admission and returns the delay it brings, in milliseconds."""
        self.used_ms = now_ms
        self.admitted_bytes += amount
        pace, pool = self.pace, self.pool
        if pool is not None and pace is not None:
            if pace.due_ms > now_ms and pool.debt_ms(now_ms) == 0:
                pace.pay_off(now_ms)
            pool.charge(amount)
            delay_ms = pace.charge(amount, self.limit_per_s, now_ms)
            if delay_ms > 0:
                pool.wait(now_ms)
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

    def debt_ms(self, now_ms: int, later: int = 0) -> int:
        """Returns the time until everything recorded is paid for, but for the last `later` units of it."""
        later_ms = int(later * 1000 / self.limit_per_s) if later and self.limit_per_s > 0 else 0
        pace, pool = self.pace, self.pool
        if pool is not None and pace is not None:
            debt_ms = pace.debt_ms(now_ms + later_ms)
            return min(debt_ms, pool.debt_ms(now_ms, later)) if debt_ms else 0
        debt_ms = max(0, throttle.delay_ms(self.rate, self.limit_per_s, now_ms) - later_ms)
        return debt_ms if pace is None else max(debt_ms, pace.debt_ms(now_ms + later_ms))

    def fetch_debt_ms(self, amount: int, now_ms: int) -> int:
        """Returns how long a response of `amount` bytes waits, without recording it (QUO-20).

        With a pace the response may run into debt itself: what was sent before is paid first. Kafka's window alone
        counts the response, too.
        """
        self.used_ms = now_ms
        if self.pace is not None:
            return self.debt_ms(now_ms)
        delay_ms = throttle.charge(self.rate, amount, self.limit_per_s, now_ms)
        self.rate.record(-amount, now_ms)
        return delay_ms

    def debt_changed(self, now_ms: int) -> None:
        """Takes note that less, or more, is owed than when delays were computed: waits end when that is paid."""
        ends_ms = now_ms + self.debt_ms(now_ms)
        if ends_ms > self.owed_until_ms:
            self.owed_until_ms = ends_ms
        if now_ms <= ends_ms < self.waits_until_ms:
            self.waited_ms -= self.waits_until_ms - ends_ms
            self.waits_until_ms = ends_ms
        if self.waiting is not None:
            self.waiting.debt_changed(now_ms)

    def note_wait(self, delay_ms: int, now_ms: int) -> None:
        """Notes that a client waits this long for this limit."""
        begins_ms = self.waits_until_ms if self.waits_until_ms > now_ms else now_ms
        ends_ms = now_ms + delay_ms
        if ends_ms > begins_ms:
            self.waited_ms += ends_ms - begins_ms
            self.waits_until_ms = ends_ms

    def _burst(self, limit_per_s: float) -> float:
        """What all samples of the window take together."""
        return limit_per_s * self.rate.count * self.rate.width_ms / 1000


def charge(limiters: Sequence[Limiter], amount_bytes: int, now_ms: int) -> tuple[int, Limiter | None]:
    """Records `amount_bytes` everywhere; returns the longest delay and its limiter (QUO-22, CKA-25). `now_ms` is
    monotonic.
    """
    worst_ms, worst = 0, None
    for limiter in limiters:
        delay_ms = limiter.charge(amount_bytes, now_ms)
        if delay_ms > worst_ms:
            worst_ms, worst = delay_ms, limiter
    if worst is not None:
        worst.note_wait(worst_ms, now_ms)
    return worst_ms, worst


def charge_fetch(
    limited: Sequence[tuple[Limiter, int]], now_ms: int, is_held: bool = False
) -> tuple[int, Limiter | None]:
    """Records a response, given as limiters with the bytes that count for each, unless it has to wait: then nothing is
    recorded (QUO-20). Returns the longest delay and its limiter. `is_held`: the response waits for something else.
    """
    worst_ms, worst = 0, None
    for limiter, amount_bytes in limited:
        delay_ms = limiter.fetch_debt_ms(amount_bytes, now_ms)
        if delay_ms > worst_ms:
            worst_ms, worst = delay_ms, limiter
    if worst is not None:
        worst.note_wait(worst_ms, now_ms)
    elif not is_held:
        for limiter, amount_bytes in limited:
            limiter.charge(amount_bytes, now_ms)
    return worst_ms, worst


def in_debt(limiters: Sequence[Limiter], now_ms: int) -> Limiter | None:
    """Returns the limiter that owes longest, None if everything is paid.

    Under Kafka's window alone a debt is that of the connection that ran into it, as in Kafka: nothing owes.
    """
    worst_ms, worst = 0, None
    for limiter in limiters:
        if limiter.owed_until_ms > now_ms and limiter.pace is not None:
            debt_ms = limiter.debt_ms(now_ms)
            if debt_ms > worst_ms:
                worst_ms, worst = debt_ms, limiter
            elif not debt_ms:
                limiter.owed_until_ms = now_ms
    return worst


def fetch_cap_bytes(limiters: Sequence[Limiter], wanted_bytes: int) -> int:
    """QUO-19: the most one response may weigh."""
    for limiter in limiters:
        cap = throttle.fetch_cap_bytes(limiter.rate, limiter.limit_per_s)
        if limiter.pace is not None:
            cap = min(cap, pacing.fetch_cap_bytes(limiter.limit_per_s))
        wanted_bytes = min(wanted_bytes, cap)
    return wanted_bytes


def record_time(limiter: Limiter, spent_s: float, now_ms: int) -> None:
    """Requests took so much of a broker's time (QUO-21)."""
    limiter.used_ms = now_ms
    limiter.rate.record(int((spent_s + limiter.unrecorded_s) * NS_PER_S), now_ms)
    limiter.unrecorded_s = 0.0


def time_delay_ms(limiter: Limiter, now_ms: int) -> int:
    """How long to wait for what was recorded: one window at most (QUO-17)."""
    delay_ms = throttle.delay_ms(limiter.rate, limiter.limit_per_s * NS_PER_PERCENT, now_ms)
    return min(delay_ms, limiter.rate.width_ms)


def new_pace(burst_ms: int) -> Pace | None:
    """The pace of a limiter; a negative burst means Kafka's window alone."""
    return Pace(burst_ms) if burst_ms >= 0 else None


class LimitParts(Protocol):
    """This broker's part of the client quotas of an instance; `client_shares.ClientShares` fits."""

    def apply(self, quota: str, key: tuple[str, str, str], limiter: Limiter, limit_per_s: float, now_ms: int) -> None:
        """Puts this broker's part of the limit in force."""


class ClientQuotas:
    """The client quotas of one instance: a limiter per sharing group and quota (QUO-3)."""

    def __init__(
        self,
        burst_ms: int = BURST_MS,
        window: Window = WINDOW,
        controller_window: Window = WINDOW,
        callback: AskCallback | None = None,
        client_id_defaults: Mapping[str, float] = MappingProxyType({}),
    ) -> None:
        self._callback = callback
        self._client_id_defaults = client_id_defaults
        self._burst_ms = burst_ms
        self._window = window
        self._controller_window = controller_window
        self._limiters: dict[tuple[str, str, str], Limiter] = {}
        self._known_limits: LimitsByEntity | None = None
        self._quotas_set: frozenset[str] = frozenset()
        # Who knows this broker's part of a limit; None: all of it.
        self.parts: LimitParts | None = None

    def __len__(self) -> int:
        return len(self._limiters)

    def is_set(self, limits: LimitsByEntity, quota: Quota) -> bool:
        """Whether anybody may have a limit of this kind; looked at once for each object that `limits` is."""
        if self._callback is not None or quota in self._client_id_defaults:
            return True
        if limits is not self._known_limits:
            self._quotas_set = frozenset(name for of_entity in limits.values() for name in of_entity)
            self._known_limits = limits
        return quota in self._quotas_set

    def limiter(
        self, limits: LimitsByEntity, quota: Quota, user: str, client_id: str, now_ms: int, part: float = 1.0
    ) -> Limiter | None:
        """The limiter of this client under the present `limits`, of which `part` is for this broker; None = unlimited.
        Takes over a changed limit or level.
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
                key = (quota, *precedence.sharing_group(match.level, user, _short(client_id)))
            elif client_id and quota in self._client_id_defaults:
                rule = Rule("client_quota", quota, None, None)
                limit_per_s = self._client_id_defaults[quota]
                key = (quota, "", _short(client_id))
            else:
                return None
        limiter = self._limiters.get(key)
        if limiter is None:
            if len(self._limiters) >= LIMITERS_PER_INSTANCE_MAX:
                key = (quota, OTHERS, OTHERS)
                limiter = self._limiters.get(key)
            if limiter is None:
                limiter = self._limiters[key] = self._new(rule, quota, limit_per_s, now_ms)
        if self.parts is None or quota not in BYTE_RATES:
            limiter.limit(limit_per_s * part, now_ms, limit_per_s)
        else:
            self.parts.apply(quota, key, limiter, limit_per_s, now_ms)
        limiter.rule, limiter.used_ms = rule, now_ms
        return limiter

    def _new(self, rule: Rule, quota: Quota, limit_per_s: float, now_ms: int) -> Limiter:
        """Time and changes go by Kafka's own measure alone."""
        pace = new_pace(self._burst_ms) if quota in BYTE_RATES else None
        window = self._controller_window if quota == CONTROLLER_MUTATION_RATE else self._window
        return Limiter(rule, limit_per_s, now_ms, pace, window)

    def release_waits(self) -> None:
        """Lets clients that wait ask again, under limits that were set anew."""
        for limiter in self._limiters.values():
            if limiter.waiting is not None:
                limiter.waiting.release()

    def drop_unused(self, now_ms: int) -> int:
        """QUO-8. Whoever holds limiters must look them up again afterwards when this answers more than 0."""
        unused = [key for key, limiter in self._limiters.items() if now_ms - limiter.used_ms >= UNUSED_MS_MAX]
        for key in unused:
            del self._limiters[key]
        return len(unused)


def _short(client_id: str) -> str:
    """What stands for a client id in memory: itself, or the digest of one that is longer than anybody's should be."""
    return client_id if len(client_id) <= NAME_CHARACTERS_MAX else sha256(client_id.encode()).hexdigest()
