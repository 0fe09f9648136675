"""Snapshots (`billing.invoices.snapshot`): a rated bill survives JSON to the last digit."""

from __future__ import annotations

import json
from datetime import UTC, datetime, timedelta
from decimal import Decimal

import pytest
from hypothesis import given
from hypothesis import strategies as st

from billing.invoices.snapshot import Inputs, from_json, to_json
from billing.rating.terms import (
    Agreement,
    Component,
    Discount,
    HourUsage,
    InstanceUsage,
    Meter,
    Period,
    PriceList,
    RatePoint,
    Scheme,
    SizeSpan,
    TaxChange,
    Tier,
)

BEGIN = datetime(2026, 3, 1, tzinfo=UTC)
instants = st.integers(0, 10**7).map(lambda seconds: BEGIN + timedelta(seconds=seconds))
amounts = st.decimals("0", "1000000", places=6)
counts = st.integers(0, 2**62)
tiers = st.builds(Tier, up_to=st.none() | amounts, unit_price=amounts, flat=amounts)
components = st.builds(
    Component, meter=st.sampled_from(Meter), scheme=st.sampled_from(Scheme),
    tiers=st.lists(tiers, min_size=1, max_size=3),
    included=amounts, commit=amounts, overage_price=st.none() | amounts,
)  # fmt: skip
usages = st.builds(
    InstanceUsage,
    instance_id=st.text(max_size=16),
    spans=st.lists(
        st.builds(
            SizeSpan, plan=st.text(max_size=8), bandwidth_mb_s=counts, storage_gb=counts, start=instants,
            end=st.none() | instants, only_storage=st.booleans(),
        ),
        max_size=3,
    ),
    hours=st.lists(
        st.builds(
            HourUsage, hour=instants, bytes_in=counts, bytes_out=counts, stored_byte_hours=amounts,
            partition_hours=amounts, connections_peak=counts,
        ),
        max_size=3,
    ),
    rate_points=st.lists(st.builds(RatePoint, start=instants, bytes_in=counts, bytes_out=counts), max_size=3),
)  # fmt: skip
inputs = st.builds(
    Inputs,
    period=st.builds(Period, start=instants, end=instants),
    usage=st.lists(usages, max_size=3),
    prices=st.lists(
        st.builds(
            PriceList, plan=st.text(max_size=8), currency=st.just("EUR"), effective_from=instants,
            components=st.lists(components, max_size=3),
        ),
        max_size=3,
    ),
    agreement=st.builds(
        Agreement, currency=st.just("EUR"), minimum=amounts, tax_percent=amounts,
        discounts=st.lists(
            st.builds(
                Discount, code=st.text(max_size=8), percent=amounts, amount=amounts, start=st.none() | instants,
                end=st.none() | instants,
            ),
            max_size=2,
        ),
        tax_changes=st.lists(st.builds(TaxChange, effective_from=instants, percent=amounts), max_size=2),
    ),
)  # fmt: skip


@given(inputs)
def test_inputs_come_out_of_json_as_they_went_in(given_inputs: Inputs) -> None:
    assert from_json(json.loads(json.dumps(to_json(given_inputs)))) == given_inputs


def test_inputs_of_a_version_that_is_not_known_are_refused() -> None:
    with pytest.raises(ValueError, match="unknown version 9"):
        from_json({"version": 9})


def test_decimals_keep_all_their_digits() -> None:
    third = Decimal(1) / 3
    usage = InstanceUsage(instance_id="i", spans=(), hours=[HourUsage(hour=BEGIN, stored_byte_hours=third)])
    kept = to_json(
        Inputs(period=Period(start=BEGIN, end=BEGIN), usage=[usage], prices=(), agreement=Agreement(currency="EUR"))
    )
    assert from_json(kept).usage[0].hours[0].stored_byte_hours == third
