"""Settings of elections: broker-level keys, which must be equal on all brokers that may become controller."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final, NamedTuple

from brokers.engine.errors import SettingsWrong

UNCLEAN_KEY: Final = "unclean.leader.election.enable"
BALANCE_KEY: Final = "auto.leader.rebalance.enable"
BALANCE_INTERVAL_KEY: Final = "leader.imbalance.check.interval.seconds"
IMBALANCE_KEY: Final = "leader.imbalance.per.broker.percentage"

BALANCE_INTERVAL_S: Final = 300
IMBALANCE_PERCENT_MAX: Final = 10
# Delay of a new controller's first balance check after its election (REP-31).
FIRST_BALANCE_DELAY_S: Final = 5


class Policy(NamedTuple):
    """Election policy: the default for unclean elections (REP-28), and the balance of preferred leaders (REP-31)."""

    unclean_allowed: bool = False
    balance_enabled: bool = True
    balance_interval_s: int = BALANCE_INTERVAL_S
    imbalance_percent_max: int = IMBALANCE_PERCENT_MAX

    def allows_unclean(self, config: Mapping[str, str]) -> bool:
        """True if unclean elections are allowed; the topic's setting takes precedence over the broker's."""
        word = config.get(UNCLEAN_KEY)
        return self.unclean_allowed if word is None else word.strip().lower() == "true"


DEFAULT: Final = Policy()


def from_overrides(overrides: Mapping[str, str]) -> Policy:
    """Returns the policy that a broker's keys contain, with defaults for those that are absent.

    Raises:
        SettingsWrong: a value is invalid.
    """
    return Policy(
        unclean_allowed=_read_flag(overrides, UNCLEAN_KEY, False),
        balance_enabled=_read_flag(overrides, BALANCE_KEY, True),
        balance_interval_s=_read_number(overrides, BALANCE_INTERVAL_KEY, BALANCE_INTERVAL_S, minimum=1),
        imbalance_percent_max=_read_number(overrides, IMBALANCE_KEY, IMBALANCE_PERCENT_MAX, minimum=0),
    )


def _read_flag(overrides: Mapping[str, str], key: str, default: bool) -> bool:
    word = overrides.get(key, str(default)).strip().lower()
    if word not in ("true", "false"):
        raise SettingsWrong(f"{key} is neither true nor false: {word!r}")
    return word == "true"


def _read_number(overrides: Mapping[str, str], key: str, default: int, *, minimum: int) -> int:
    text = overrides.get(key, str(default))
    try:
        number = int(text)
    except ValueError:
        raise SettingsWrong(f"{key} is not a whole number: {text!r}") from None
    if number < minimum:
        raise SettingsWrong(f"{key} must be at least {minimum}, not {number}")
    return number
