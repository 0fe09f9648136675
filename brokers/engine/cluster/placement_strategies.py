"""Names of the strategies by which replicas are assigned to brokers (ASG-4)."""

from __future__ import annotations

from typing import Final, Literal, get_args

Strategy = Literal["random_shift", "round_robin"]
STRATEGIES: Final = frozenset(get_args(Strategy))
STRATEGY_KEY: Final = "replica.assignment.strategy"
STRATEGY_DEFAULT: Final[Strategy] = "random_shift"
