"""Random quarters of one tenant as drawn data: plans, prices, sizes, usage, taxes, discounts, and acts on invoices.

Properties of billing bring them into the pure core (`tests/unit/billing/test_random_quarters.py`) or into the database
(`tests/component/billing/test_random_months.py`).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from typing import Any

from hypothesis import strategies as st

from billing.invoices.periods import month_of
from billing.metering.spans import SizeChange
from billing.rating.terms import Period
from instances.choices import OperationType

LONG_BEFORE = datetime(2023, 1, 1, tzinfo=UTC)
GB = 10**9
HOUR = timedelta(hours=1)
MINUTE = timedelta(minutes=1)
POINT = timedelta(minutes=5)
MONTHS = 3
# With a leap day, without one, and over the turn of a year.
STARTS = tuple(datetime(year, month, 1, tzinfo=UTC) for year, month in ((2023, 11), (2024, 1), (2025, 1), (2025, 12)))
PLANS = ("brook", "stream")
METERS = ("bytes_in", "bytes_out", "stored", "partitions", "connections", "bandwidth_p95")
UNITS = {"produce": GB, "consume": GB, "stored": GB, "partitions": 3_600, "connections": 1}
# Minutes between two changes: in the same hour, on the same day, and weeks apart.
GAPS = (3, 20, 61, 700, 1_500, 9_000, 30_000)
INCLUDED_MB_S, INCLUDED_GB = 5, 20


@dataclass(frozen=True)
class Quarter:
    """Everything that is drawn. Money is in smallest units of the currency, times are minutes since the start."""

    currency: str
    start: datetime
    prices: Sequence[tuple[str, int, tuple[int, int, int], Sequence[dict[str, Any]]]]
    instances: Sequence[tuple[Sequence[tuple[int, str, str, int, int]], tuple[int, int, int]]]
    usage: Sequence[tuple[int, int, int, str, int]]
    late: Sequence[tuple[int, int, int, int, str, int]]
    tax_percent: int
    is_reverse_charge: bool
    tax_changes: Sequence[tuple[int, int]]
    minimum: int
    minimum_month: int
    discounts: Sequence[tuple[int, int, int, int]]
    coupons: Sequence[tuple[int, int, int, int]]
    acts: Sequence[Sequence[tuple[str, int, int]]]

    @property
    def months(self) -> list[Period]:
        result = [month_of(self.start)]
        while len(result) < MONTHS:
            result.append(month_of(result[-1].end))
        return result


prices_of_units = st.integers(1_000, 300_000).map(lambda millionths: str(Decimal(millionths) / 10**6))
volumes = st.sampled_from((0, 0, 1, 50, 400))
minutes = st.integers(0, MONTHS * 31 * 1_440)
hour_numbers = st.integers(0, 28 * 24 - 1)


@st.composite
def components(draw: st.DrawFn) -> list[dict[str, Any]]:
    result = []
    for meter in METERS:
        if draw(st.integers(0, 3)) == 0:
            continue
        edges: list[int | None] = [*sorted(draw(st.sets(st.integers(1, 300), max_size=2))), None]
        tiers = [
            [None if edge is None else str(edge), draw(prices_of_units), draw(st.sampled_from(("0", "0", "3")))]
            for edge in edges
        ]
        overage = draw(st.none() | prices_of_units)
        result.append(
            {
                "meter": meter, "scheme": draw(st.sampled_from(("graduated", "volume"))), "tiers": tiers,
                "included": draw(volumes), "commit": draw(volumes), "overage_price": overage and Decimal(overage),
            }
        )  # fmt: skip
    return result


booked = st.tuples(st.integers(0, 3_000), st.integers(0, 200), st.integers(0, 2_000))
steps = st.tuples(
    st.sampled_from(GAPS), st.sampled_from(("resize", "resize", "resize", "suspend", "delete", "fail")),
    st.sampled_from(PLANS), st.integers(1, 40), st.integers(1, 300),
)  # fmt: skip
runs_of_points = st.tuples(st.integers(0, MONTHS - 1), st.integers(0, 600), st.integers(0, 50))
ACTS = ("credit", "credit", "credit the rest", "pay", "pay", "pay too much", "mark paid", "write off", "refund")


acts = st.tuples(st.sampled_from(ACTS), st.integers(0, 100), st.integers(0, 2))


@st.composite
def quarters(draw: st.DrawFn) -> Quarter:
    repriced = draw(st.lists(st.sampled_from(PLANS), max_size=2))
    later = [(plan, draw(minutes), draw(booked), draw(components())) for plan in repriced]
    is_reverse_charge = draw(st.integers(0, 5)) == 0
    percents = st.just(0) if is_reverse_charge else st.sampled_from((0, 700, 1_900, 2_550))
    of_hour = hour_numbers, st.integers(0, 1), st.sampled_from(tuple(UNITS))
    in_months, before_last = (st.tuples(st.integers(0, last), *of_hour) for last in (MONTHS - 1, MONTHS - 2))
    return Quarter(
        currency=draw(st.sampled_from(("EUR", "EUR", "JPY", "KWD"))),
        start=draw(st.sampled_from(STARTS)),
        prices=[*((plan, -10**6, draw(booked), draw(components())) for plan in PLANS), *later],
        instances=draw(st.lists(st.tuples(st.lists(steps, max_size=6), runs_of_points), min_size=1, max_size=2)),
        usage=[(*place, draw(st.integers(0, 300))) for place in draw(st.lists(in_months, min_size=3, max_size=12))],
        late=[
            (draw(st.integers(place[0], MONTHS - 2)), *place, draw(st.integers(0, 300)))
            for place in draw(st.lists(before_last, min_size=1, max_size=4))
        ],
        tax_percent=draw(percents),
        is_reverse_charge=is_reverse_charge,
        tax_changes=sorted(draw(st.dictionaries(minutes, percents, max_size=2)).items()),
        minimum=draw(st.sampled_from((0, 0, 5_000, 50_000))),
        minimum_month=draw(st.integers(-1, MONTHS)),
        discounts=draw(
            st.lists(
                st.tuples(st.integers(0, 100), st.integers(0, 900), st.integers(-1, 1), st.integers(1, 3)), max_size=2
            )
        ),
        coupons=draw(
            st.lists(
                st.tuples(st.integers(0, MONTHS - 1), st.integers(1, 100), st.integers(0, 900), st.integers(1, 3)),
                max_size=2,
            )
        ),
        acts=draw(
            st.lists(
                st.lists(acts, min_size=1, max_size=5),
                min_size=MONTHS, max_size=MONTHS,
            )
        ),
    )  # fmt: skip


def month_start(months: Sequence[Period], number: int) -> datetime:
    """Returns the start of a month of the quarter, or its end."""
    return months[number].start if number < MONTHS else months[-1].end


def changes_of(quarter: Quarter, drawn: Sequence[tuple[int, str, str, int, int]]) -> list[SizeChange]:
    """Returns the operations of an instance that runs from the start on; one without `done_at` failed."""
    at, size, is_suspended, is_deleted = quarter.start, (PLANS[0], INCLUDED_MB_S, INCLUDED_GB), False, False
    result = []

    def change(type_: OperationType, size: tuple[str, int, int], *, is_done: bool = True) -> None:
        plan, bandwidth_mb_s, storage_gb = size
        result.append(
            SizeChange(
                type=type_, requested_at=at, done_at=at + 2 * MINUTE if is_done else None, plan=plan,
                bandwidth_mb_s=bandwidth_mb_s, storage_gb=storage_gb, is_suspended=is_suspended,
            )
        )  # fmt: skip

    change(OperationType.CREATE, size)
    for gap, what, plan, bandwidth_mb_s, storage_gb in drawn:
        at += gap * MINUTE
        if is_deleted:
            is_deleted = False
            change(OperationType.RESTORE, size)
        elif what == "delete":
            is_deleted = True
            change(OperationType.DELETE, size)
        elif what == "suspend":
            is_suspended = not is_suspended
            change(OperationType.SUSPEND if is_suspended else OperationType.RESUME, size)
        elif what == "fail":
            change(OperationType.RESIZE, (plan, bandwidth_mb_s, storage_gb), is_done=False)
        else:
            size = plan, bandwidth_mb_s, storage_gb
            change(OperationType.RESIZE, size)
    return result


def rate_points(quarter: Quarter, run: tuple[int, int, int]) -> list[tuple[datetime, int]]:
    """Returns five-minute sums of incoming bytes."""
    month, first, hours = run
    begin = quarter.months[month].start + first * HOUR
    return [(begin + n * POINT, (n % 97) * 10**8) for n in range(hours * 12)]


def counted(direction: str, amount: int) -> int:
    """Returns the counter of an hour in bytes, byte-hours, partition-seconds or connections."""
    return amount * UNITS[direction] + amount
