"""Usage of a span equals the sum of its minutes, read from minutes, hours or days."""

from __future__ import annotations

from collections import Counter, defaultdict
from datetime import UTC, datetime, timedelta
from typing import Any, get_args

import pytest
from django.db import connection
from django.test import override_settings
from django.test.utils import CaptureQueriesContext
from django.utils import timezone
from hypothesis import given, settings
from hypothesis import strategies as st

from billing import costs, metered, services
from billing.metered import GroupBy, MinutesNotKept, Step
from billing.models import Price
from tests.testkit.api_cases import Api, assert_problem, make_member
from tests.testkit.billing import create_operations, create_usage
from tests.testkit.instances import make_instance

pytestmark = pytest.mark.django_db

DAYS = 4
MINUTES = DAYS * 24 * 60


def midnight() -> datetime:
    """Returns the start of the day a week ago."""
    return timezone.now().astimezone(UTC).replace(hour=0, minute=0, second=0, microsecond=0) - timedelta(days=7)


def test_any_span_step_and_group_is_the_sum_of_its_minutes() -> None:
    instance_id, begin = make_instance(make_member().tenant).pk, midnight()
    rows: list[tuple[datetime, dict[str, str], str, int]] = []
    for number in range(160):
        names = {"topic": f"t{number % 3}", "user": f"u{number % 2}", "client_id": f"c{number % 5}"}
        at = begin + timedelta(minutes=number * 37 % MINUTES)
        direction = ("produce", "consume")[number % 2]
        create_usage(instance_id, at, **{direction: number + 1}, **names)  # type: ignore[arg-type]
        rows.append((at, names, direction, number + 1))

    def floored(at: datetime, step: Step) -> datetime:
        return {
            "minute": at, "hour": at.replace(minute=0), "day": at.replace(hour=0, minute=0)
        }[step]  # fmt: skip

    @settings(max_examples=60, deadline=None)
    @given(
        start=st.integers(-60, MINUTES), length=st.integers(1, MINUTES), step=st.sampled_from(get_args(Step)),
        group=st.sampled_from((None, *get_args(GroupBy))),
    )  # fmt: skip
    def holds(start: int, length: int, step: Step, group: GroupBy | None) -> None:
        first, last = begin + timedelta(minutes=start), begin + timedelta(minutes=start + length)
        inside = [row for row in rows if first <= row[0] < last]
        expected: Counter[tuple[Any, ...]] = Counter()
        for at, names, direction, count in inside:
            expected[floored(at, step), direction, *([names[group]] if group else [])] += count
        found = metered.usage_rows(instance_id, start=first, end=last, step=step, group_by=[group] if group else [])
        assert {(row["start"], row["direction"], *([row[group]] if group else [])): row["bytes"] for row in found} == (
            expected
        )
        totals = metered.usage_totals(instance_id, start=first, end=last)
        assert totals.produce_bytes == sum(row[3] for row in inside if row[2] == "produce")
        assert totals.consume_requests == sum(1 for row in inside if row[2] == "consume")
        if group:
            by_name: dict[str, Counter[str]] = defaultdict(Counter)
            for _, names, direction, count in inside:
                by_name[names[group]][direction] += count
            named = list(metered.names_of([instance_id], start=first, end=last, by=group))
            assert {row[1]: (row[2], row[3]) for row in named} == {
                name: (counts["produce"], counts["consume"]) for name, counts in by_name.items()
            }
            assert [row[2] + row[3] for row in named] == sorted((c.total() for c in by_name.values()), reverse=True)
            assert list(metered.names_of([instance_id], start=first, end=last, by=group, limit=2)) == named[:2]

    holds()


def test_whole_days_and_hours_are_read_without_minutes() -> None:
    instance_id, begin = make_instance(make_member().tenant).pk, midnight()
    with CaptureQueriesContext(
        connection,
    ) as asked:
        metered.usage_rows(instance_id, start=begin, end=begin + timedelta(hours=9), step="hour")
        metered.usage_rows(instance_id, start=begin, end=begin + timedelta(days=3), step="day", group_by=["topic"])
        list(metered.names_of([instance_id], start=begin, end=begin + timedelta(days=3), by="user"))
        metered.usage_totals(instance_id, start=begin, end=begin + timedelta(days=3))
    assert len(asked) == 4
    assert not [query for query in asked.captured_queries if "usageminute" in query["sql"]]


@pytest.mark.parametrize(
    ("step", "group_by", "hours"),
    [("minute", "", 0), ("hour", "topic", 0), ("day", "topic", 5), ("hour", "", 0.5)],
    ids=["minutes", "names by hour", "names of a part of a day", "a part of an hour"],
)
def test_a_query_that_needs_dropped_minutes_is_refused_with_the_steps_that_are_kept(
    step: str, group_by: str, hours: float
) -> None:
    owner = make_member()
    instance = make_instance(owner.tenant)
    start = midnight() - timedelta(days=365) + timedelta(hours=hours)
    at = f"/instances/{instance.pk}/usage?step={step}&start={start:%Y-%m-%dT%H:%M:%SZ}"
    at += f"&end={start + timedelta(days=2):%Y-%m-%dT%H:%M:%SZ}" + (f"&group_by={group_by}" if group_by else "")

    answer = assert_problem(Api.of(owner).get(at), 400, "invalid_request")

    (error,) = answer["errors"]
    assert (error["parameter"], error["code"]) == ("start", "minutes_not_kept")
    assert "whole hours or days" in error["detail"]


def test_usage_of_a_year_ago_is_returned_by_hour_and_by_day_and_name() -> None:
    owner = make_member()
    instance = make_instance(owner.tenant)
    day = midnight() - timedelta(days=365)
    create_operations(instance, day - timedelta(days=1))
    services.ensure_default_plans()
    Price.objects.update(effective_from=day - timedelta(days=1))
    with override_settings(USAGE_MINUTES_KEPT_DAYS=10_000):
        create_usage(instance.pk, day + timedelta(hours=3), produce=40, topic="clicks")
    caller, span = Api.of(owner), f"start={day:%Y-%m-%d}T00:00:00Z&end={day + timedelta(days=1):%Y-%m-%d}T00:00:00Z"

    hours = caller.get(f"/instances/{instance.pk}/usage?step=hour&{span}").json()
    days = caller.get(f"/instances/{instance.pk}/usage?step=day&group_by=topic&{span}").json()

    assert [(row["start"][11:16], row["bytes"]) for row in hours["items"]] == [("03:00", 40)]
    assert [(row["topic"], row["bytes"]) for row in days["items"]] == [("clicks", 40)]
    assert hours["totals"]["produce_bytes"] == days["totals"]["produce_bytes"] == 40
    with pytest.raises(MinutesNotKept):
        costs.costs(owner.tenant, day + timedelta(hours=1), day + timedelta(hours=2), "topic")
    answer = caller.get(f"/costs?group_by=topic&start={day:%Y-%m-%d}T01:00:00Z&end={day:%Y-%m-%d}T02:00:00Z")
    assert assert_problem(answer, 400)["errors"][0]["code"] == "minutes_not_kept"


def test_a_reading_of_very_many_names_is_refused_before_it_is_in_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    """A tenant may use any number of client ids in each minute."""
    monkeypatch.setattr(metered, "ROWS_PER_READ_MAX", 20)
    owner = make_member()
    instance, at = make_instance(owner.tenant), midnight()
    for number in range(21):
        create_usage(instance.pk, at + timedelta(minutes=number), produce=1, client_id=f"c{number}")
    span = f"start={at:%Y-%m-%d}T00:00:00Z&end={at + timedelta(days=1):%Y-%m-%d}T00:00:00Z"
    caller, path = Api.of(owner), f"/instances/{instance.pk}/usage"

    for asked in ("step=minute&group_by=client_id", "step=day&group_by=client_id", "step=minute"):
        answer = assert_problem(caller.get(f"{path}?{asked}&{span}"), 400, "invalid_request")
        assert answer["errors"][0]["code"] == "too_many_rows"
    assert len(caller.get(f"{path}?step=day&group_by=topic&{span}").json()["items"]) == 1
