"""Allocation (`billing.rating.allocation`): parts are whole cents and sum to the amount."""

from __future__ import annotations

from decimal import Decimal

import pytest
from hypothesis import given
from hypothesis import strategies as st

from billing.rating.allocation import allocate

amounts = st.decimals("-9999", "99999", places=2)
weights = st.dictionaries(st.text(max_size=4), st.integers(0, 10**15).map(Decimal), min_size=1, max_size=30)


@given(amounts, weights)
def test_the_parts_sum_to_the_amount_and_each_is_within_a_cent_of_its_share(
    amount: Decimal, given_weights: dict[str, Decimal]
) -> None:
    found = allocate(amount, given_weights)

    assert sum(found.values()) == amount
    assert set(found) == set(given_weights)
    total = sum(given_weights.values())
    for key, part in found.items():
        share = given_weights[key] / total if total else Decimal(1) / len(given_weights)
        assert part == part.quantize(Decimal("0.01"))
        assert abs(part - amount * share) <= Decimal("0.01")


def test_equal_weights_share_evenly_and_the_first_gets_the_odd_cent() -> None:
    found = allocate(Decimal("1.00"), {"a": Decimal(1), "b": Decimal(1), "c": Decimal(1)})
    assert [str(part) for part in found.values()] == ["0.34", "0.33", "0.33"]


def test_an_amount_without_anybody_to_share_it_is_refused() -> None:
    with pytest.raises(ValueError, match="no weight"):
        allocate(Decimal(1), {})
