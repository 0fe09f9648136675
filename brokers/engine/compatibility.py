"""Behaviour of older Kafka brokers that 3.9.1 lacks, switched on by `compat.profile=seed` (DEC-1, DEC-18)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from brokers.engine.errors import SettingsWrong

PROFILE_KEY: Final = "compat.profile"
SEED: Final = "seed"
UNCLEAN_KEY: Final = "unclean.leader.election.enable"
PRODUCER_DEFAULT_KEY: Final = "quota.producer.default"
CONSUMER_DEFAULT_KEY: Final = "quota.consumer.default"
_DEFAULT_KEYS: Final[Mapping[str, str]] = {
    PRODUCER_DEFAULT_KEY: "producer_byte_rate",
    CONSUMER_DEFAULT_KEY: "consumer_byte_rate",
}
# Kafka's default of both: no limit.
BYTES_PER_S_MAX: Final = 2**63 - 1


# Settings of older brokers that are accepted without effect, each with the reason (DEC-2).
IGNORED: Final[Mapping[str, str]] = {
    "replica.lag.max.messages": "followers leave the ISR by time alone: replica.lag.time.max.ms",
}


def ignored(overrides: Mapping[str, str]) -> dict[str, str]:
    """Returns the settings without effect, with the reason of each."""
    return {key: reason for key, reason in IGNORED.items() if key in overrides}


def with_profile(overrides: Mapping[str, str]) -> dict[str, str]:
    """Returns a broker's settings with those that its profile adds; explicit settings take precedence.

    Raises:
        SettingsWrong: the profile is unknown.
    """
    profile = overrides.get(PROFILE_KEY, "")
    if profile not in ("", SEED):
        raise SettingsWrong(f"{PROFILE_KEY} is empty or {SEED!r}, not {profile!r}")
    return {UNCLEAN_KEY: "true", **overrides} if profile == SEED else dict(overrides)


def client_id_defaults(overrides: Mapping[str, str]) -> dict[str, float]:
    """Returns the byte rates by quota, in bytes per second, of each client id that none of the eight levels of client
    quotas covers: level 9 (QUO-2). Empty without the profile, because Kafka 3.9.1 does not have these settings.

    Raises:
        SettingsWrong: a value is invalid.
    """
    if overrides.get(PROFILE_KEY) != SEED:
        return {}
    limits = {quota: _bytes_per_s(key, overrides[key]) for key, quota in _DEFAULT_KEYS.items() if key in overrides}
    return {quota: float(limit) for quota, limit in limits.items() if limit < BYTES_PER_S_MAX}


def _bytes_per_s(key: str, value: str) -> int:
    try:
        number = int(value)
    except ValueError:
        number = 0
    if not 0 < number <= BYTES_PER_S_MAX:
        raise SettingsWrong(f"{key} is a number of bytes a second, at least 1, not {value!r}")
    return number
