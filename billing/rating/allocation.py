"""Division of an amount into whole cents that sum to it, by the largest remainder method."""

from __future__ import annotations

from collections.abc import Mapping
from decimal import ROUND_DOWN, Decimal
from typing import TypeVar

K = TypeVar("K")
CENT = Decimal("0.01")
ZERO = Decimal(0)


def allocate(amount: Decimal, weights: Mapping[K, Decimal], unit: Decimal = CENT) -> dict[K, Decimal]:
    """Divides `amount` into multiples of `unit` in proportion to non-negative weights; evenly if all weights are zero.

    Of equal remainders the earlier key gets the remaining unit.

    Raises:
        ValueError: there are no weights.
    """
    if not weights:
        raise ValueError("there is no weight to divide an amount by")
    total = sum(weights.values(), ZERO)
    share_of = {key: (weight / total if total else Decimal(1) / len(weights)) for key, weight in weights.items()}
    exact = {key: amount * share for key, share in share_of.items()}
    result = {key: value.quantize(unit, ROUND_DOWN) for key, value in exact.items()}
    remainder = amount - sum(result.values(), ZERO)
    step = unit if remainder >= 0 else -unit
    by_remainder = sorted(exact, key=lambda key: abs(exact[key] - result[key]), reverse=True)
    for number in range(int(abs(remainder) / unit)):
        result[by_remainder[number % len(by_remainder)]] += step
    return result
