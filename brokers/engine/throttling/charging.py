"""Limits with their counters, and the one function that charges them (QUO-7, QUO-14, QUO-20, QUO-22, CKA-25)."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from hashlib import sha256
from types import MappingProxyType
from typing import Final, Literal, NamedTuple, Protocol

from brokers.contract.usage import NAME_CHARACTERS_MAX
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


class Limiter:
    """One counter under one limit, which is in the unit of its quota. Connections of the same group share it; a
    changed limit keeps the samples (QUO-7). `pace` None: Kafka's window alone, which lets ten seconds' worth through at
    once.

    `limit_per_s` is this broker's share of `whole_limit_per_s`, which was bought or set for all brokers together.
    `share_key` names it among the brokers, "" for what is not shared out by demand. `admitted_bytes` and `waited_ms`
    grow forever: what passed, and for how long somebody waited for this limit (up to `waits_until_ms`, which may be
    ahead of the clock).
    """

    __slots__ = (
        "admitted_bytes",
        "bucket",
        "limit_per_s",
        "pace",
        "rate",
        "rule",
        "share_key",
        "unrecorded_s",
        "used_ms",
        "waited_ms",
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

    def limit(self, limit_per_s: float, now_ms: int, whole_limit_per_s: float | None = None) -> None:
        """What holds from here on. Where only this broker's share gets smaller, what was admitted under the one before
        counts as the same part of this one.
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

    def note_wait(self, delay_ms: int, now_ms: int) -> None:
        """Somebody waits so long for this limit."""
        begins_ms = self.waits_until_ms if self.waits_until_ms > now_ms else now_ms
        ends_ms = now_ms + delay_ms
        if ends_ms > begins_ms:
            self.waited_ms += ends_ms - begins_ms
            self.waits_until_ms = ends_ms

    def _burst(self, limit_per_s: float) -> float:
        """What all samples of the window take together."""
        return limit_per_s * self.rate.count * self.rate.width_ms / 1000


def charge(limiters: Sequence[Limiter], amount_bytes: int, now_ms: int) -> tuple[int, Limiter | None]:
    """Records `amount_bytes` everywhere; the longest delay and whose it is (QUO-22, CKA-25). `now_ms` is monotonic."""
    worst_ms, worst = 0, None
    for limiter in limiters:
        limiter.used_ms = now_ms
        limiter.admitted_bytes += amount_bytes
        delay_ms = throttle.charge(limiter.rate, amount_bytes, limiter.limit_per_s, now_ms)
        if limiter.pace is not None:
            paced_ms = limiter.pace.charge(amount_bytes, limiter.limit_per_s, now_ms)
            if paced_ms > delay_ms:
                delay_ms = paced_ms
        if delay_ms > worst_ms:
            worst_ms, worst = delay_ms, limiter
    if worst is not None:
        worst.note_wait(worst_ms, now_ms)
    return worst_ms, worst


def charge_fetch(
    limiters: Sequence[Limiter], amount_bytes: int, now_ms: int, is_held: bool = False
) -> tuple[int, Limiter | None]:
    """As `charge`, for a response that is only sent when nobody has to wait: otherwise nothing is counted (QUO-20).
    `is_held`: it is not sent anyway.
    """
    worst_ms, worst = 0, None
    for limiter in limiters:
        limiter.used_ms = now_ms
        delay_ms = throttle.charge(limiter.rate, amount_bytes, limiter.limit_per_s, now_ms)
        if limiter.pace is not None:
            # What was sent before has to be paid for first; this response may run into debt itself.
            delay_ms = max(delay_ms, limiter.pace.debt_ms(now_ms))
        if delay_ms > worst_ms:
            worst_ms, worst = delay_ms, limiter
    for limiter in limiters:
        if worst is not None or is_held:
            limiter.rate.record(-amount_bytes, now_ms)
            continue
        limiter.admitted_bytes += amount_bytes
        if limiter.pace is not None:
            limiter.pace.charge(amount_bytes, limiter.limit_per_s, now_ms)
    if worst is not None:
        worst.note_wait(worst_ms, now_ms)
    return worst_ms, worst


def record_parts(limited: Sequence[tuple[Limiter, int]], now_ms: int) -> tuple[int, Limiter | None]:
    """The first half of `charge_fetch`, for parts of a response that have limiters of their own: how long it is to
    wait for. `complete_parts` comes after it.
    """
    worst_ms, worst = 0, None
    for limiter, amount_bytes in limited:
        limiter.used_ms = now_ms
        delay_ms = throttle.charge(limiter.rate, amount_bytes, limiter.limit_per_s, now_ms)
        if limiter.pace is not None:
            delay_ms = max(delay_ms, limiter.pace.debt_ms(now_ms))
        if delay_ms > worst_ms:
            worst_ms, worst = delay_ms, limiter
    return worst_ms, worst


def complete_parts(limited: Sequence[tuple[Limiter, int]], now_ms: int, is_held: bool) -> None:
    """The second half: takes back what is not sent, and charges what is."""
    for limiter, amount_bytes in limited:
        if is_held:
            limiter.rate.record(-amount_bytes, now_ms)
        elif limiter.pace is not None:
            limiter.pace.charge(amount_bytes, limiter.limit_per_s, now_ms)


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

    def drop_unused(self, now_ms: int) -> int:
        """QUO-8. Whoever holds limiters must look them up again afterwards when this answers more than 0."""
        unused = [key for key, limiter in self._limiters.items() if now_ms - limiter.used_ms >= UNUSED_MS_MAX]
        for key in unused:
            del self._limiters[key]
        return len(unused)


def _short(client_id: str) -> str:
    """What stands for a client id in memory: itself, or the digest of one that is longer than anybody's should be."""
    return client_id if len(client_id) <= NAME_CHARACTERS_MAX else sha256(client_id.encode()).hexdigest()
