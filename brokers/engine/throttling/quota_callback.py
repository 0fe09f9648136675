"""Client limits that an operator's code decides (QUO-76): a Python entry point of the group
`penstock.client_quota_callback`, named by the broker setting `client.quota.callback.class`.

The callback runs on the event loop, so it must answer from memory. It is called when a connection is first used, after
each change of the cluster metadata, and at the latest after `REFRESH_S`. If it fails, the client quotas of QUO-2 apply;
a callback that fails or is slow repeatedly is suspended for a while.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from importlib.metadata import entry_points
from math import isfinite
from time import perf_counter
from typing import Final, NamedTuple, Protocol

import structlog

from brokers.engine.errors import SettingsWrong

log = structlog.get_logger(__name__)

GROUP: Final = "penstock.client_quota_callback"
# Maximum time of one decision, which is two calls.
ANSWER_S_MAX: Final = 0.005
# Number of failed or slow decisions in a row after which the callback is suspended, and for how long.
FAULTS_MAX: Final = 10
SUSPENDED_MS: Final = 60_000
REFRESH_S: Final = 10.0
# Total length of a client's tags, names included.
TAGS_CHARACTERS_MAX: Final = 1_024


class ClientQuotaCallback(Protocol):
    """Interface of a callback. `quota` is a key of QUO-1; the answers may change at any time."""

    def quota_tags(self, quota: str, instance_id: str, user: str, client_id: str) -> Mapping[str, str] | None:
        """Returns the tags of a client; clients with equal tags share a counter. With None the client quotas apply."""
        ...

    def quota_limit(self, quota: str, instance_id: str, tags: Mapping[str, str]) -> float | None:
        """Returns the limit of clients with these tags, in the unit of the quota; None for no limit."""
        ...


class CustomLimit(NamedTuple):
    """Decision of a callback: the limit, None for unlimited, and the key of the group that shares a counter."""

    limit: float | None
    group: str


class SafeCallback:
    """Wrapper of a callback that handles its errors, limits its time, and suspends it after repeated faults."""

    def __init__(self, callback: ClientQuotaCallback, monotonic_ms: Callable[[], int]) -> None:
        self._callback = callback
        self._monotonic_ms = monotonic_ms
        self._faults = 0
        self._suspended_until_ms = 0

    def decide_limit(self, instance_id: str, quota: str, user: str, client_id: str) -> CustomLimit | None:
        """Returns the callback's decision; None if the client quotas apply."""
        if self._suspended_until_ms and self._monotonic_ms() < self._suspended_until_ms:
            return None
        began_s = perf_counter()
        try:
            decision = self._decide(instance_id, quota, user, client_id)
        except Exception as error:  # an operator's code, whose errors must not fail a request
            self._record_fault(repr(error)[:TAGS_CHARACTERS_MAX])
            return None
        if perf_counter() - began_s > ANSWER_S_MAX:
            self._record_fault(f"took longer than {ANSWER_S_MAX} s")
        else:
            self._faults = 0
        return decision

    def _decide(self, instance_id: str, quota: str, user: str, client_id: str) -> CustomLimit | None:
        tags = self._callback.quota_tags(quota, instance_id, user, client_id)
        if tags is None:
            return None
        parts = [str(piece) for name in sorted(tags) for piece in (name, tags[name])]
        if sum(map(len, parts)) > TAGS_CHARACTERS_MAX:
            raise ValueError(f"tags have more than {TAGS_CHARACTERS_MAX} characters")
        # With the lengths no two groups have one key: a tag may have a client id, and that any character.
        group = "".join(f"{len(piece)}:{piece}" for piece in parts)
        limit = self._callback.quota_limit(quota, instance_id, tags)
        if limit is None:
            return CustomLimit(None, group)
        value = float(limit)
        if not isfinite(value) or value < 0:
            raise ValueError(f"{value} is not a valid limit")
        return CustomLimit(value, group)

    def _record_fault(self, reason: str) -> None:
        self._faults += 1
        if self._faults < FAULTS_MAX:
            return
        self._faults = 0
        self._suspended_until_ms = self._monotonic_ms() + SUSPENDED_MS
        log.warning("quota_callback_suspended", reason=reason, for_ms=SUSPENDED_MS)


def load(name: str, settings: Mapping[str, str], monotonic_ms: Callable[[], int]) -> SafeCallback:
    """Makes the callback of this name with the broker's settings.

    Raises:
        SettingsWrong: the callback does not exist or cannot be made.
    """
    for entry_point in entry_points(group=GROUP, name=name):
        try:
            return SafeCallback(entry_point.load()(settings), monotonic_ms)
        except Exception as error:  # an operator's code
            raise SettingsWrong(f"client.quota.callback.class {name!r} cannot be used: {error!r}") from error
    raise SettingsWrong(f"client.quota.callback.class: no package has {name!r} in the entry points of {GROUP}")
