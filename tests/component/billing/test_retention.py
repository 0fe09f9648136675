"""Weekly partitions of minutes: created ahead and dropped when old; the tables of bills stay."""

from __future__ import annotations

from datetime import datetime, timedelta

import pytest
from django.conf import settings
from django.db import connection, connections
from django.db.migrations.executor import MigrationExecutor
from django.utils import timezone

from billing import consumption, dsn, metered, services
from billing.models import Plan, PriceComponent, UsageDay, UsageHour, UsageMinute, UsagePoint
from billing.pipeline import sink
from billing.rating.terms import Meter, Period
from billing.retention import partitions, weeks
from billing.retention.weeks import DEFAULT_PARTITION, WEEK
from instances.models import Instance
from tests.testkit.api_cases import make_member
from tests.testkit.billing import create_operations, create_usage
from tests.testkit.instances import make_instance

pytestmark = pytest.mark.django_db

KEPT = timedelta(days=settings.USAGE_MINUTES_KEPT_DAYS)


def minutes_of(table: str) -> list[tuple[datetime, int]]:
    with connection.cursor() as cursor:
        cursor.execute(f'SELECT minute, bytes FROM "{table}" ORDER BY minute')
        return cursor.fetchall()


def by_percentile(instance: Instance) -> None:
    services.ensure_default_plans()
    price = Plan.objects.get(code=instance.plan).prices.get()
    PriceComponent(price=price, meter=Meter.BANDWIDTH_P95.value, tiers=[{"up_to": None, "price": "1"}]).save()


@pytest.fixture
def instance() -> Instance:
    return make_instance(make_member().tenant)


@pytest.fixture
def monday() -> datetime:
    """Start of the table: the end of its first partition."""
    (first,) = partitions.existing_partitions()
    return first.end


def test_a_minute_lies_in_the_partition_of_its_week_and_the_first_has_all_before(
    instance: Instance, monday: datetime
) -> None:
    made = partitions.maintain(monday - timedelta(hours=1)).created
    assert made == [weeks.partition_from(monday + n * WEEK).name for n in range(weeks.WEEKS_AHEAD)]
    assert partitions.maintain(monday - timedelta(hours=1)).created == []

    create_usage(instance.pk, monday - timedelta(days=400), produce=1)
    create_usage(instance.pk, monday + timedelta(days=8), produce=2)

    assert minutes_of(made[1]) == [(monday + timedelta(days=8), 2)]
    assert [count for _, count in minutes_of(f"{weeks.TABLE}_before_{monday:%Y%m%d}")] == [1]
    assert UsageMinute.objects.count() == 2


def test_a_minute_far_ahead_is_charged_and_moves_to_its_week_once_that_is_made(
    instance: Instance, monday: datetime
) -> None:
    """A broker's clock may be wrong."""
    ahead = monday + timedelta(days=100)
    create_usage(instance.pk, ahead, produce=7)
    assert minutes_of(DEFAULT_PARTITION) == [(ahead, 7)]
    assert partitions.state(monday).rows_ahead == 1

    partitions.maintain(ahead)

    assert minutes_of(DEFAULT_PARTITION) == []
    assert minutes_of(weeks.partition_from(weeks.week_of(ahead)).name) == [(ahead, 7)]
    assert not partitions.state(ahead).is_short(ahead)
    assert partitions.state(ahead).rows_ahead == 0


def test_old_minutes_are_dropped_and_days_hours_and_totals_stay(instance: Instance, monday: datetime) -> None:
    last, first = monday - timedelta(minutes=1), monday
    create_usage(instance.pk, last, produce=100, topic="old")
    create_usage(instance.pk, first, produce=10, consume=5)

    assert partitions.maintain(monday + KEPT - timedelta(hours=1)).dropped == []
    assert partitions.maintain(monday + KEPT).dropped == [f"{weeks.TABLE}_before_{monday:%Y%m%d}"]

    assert list(UsageMinute.objects.values_list("minute", flat=True)) == [first, first]
    assert UsageDay.objects.filter(topic="old").get().bytes == 100
    totals = metered.usage_totals(instance.pk, start=monday - timedelta(days=1), end=monday + timedelta(days=1))
    assert (totals.produce_bytes, totals.consume_bytes) == (110, 5)


def test_usage_that_comes_after_its_week_was_dropped_is_charged_and_forgotten_later(
    instance: Instance, monday: datetime
) -> None:
    partitions.maintain(monday + KEPT)
    late = monday - timedelta(hours=3)

    create_usage(instance.pk, late, produce=9)
    assert minutes_of(DEFAULT_PARTITION) == [(late, 9)]

    assert partitions.maintain(monday + KEPT).deleted_rows == 1
    assert minutes_of(DEFAULT_PARTITION) == []
    assert UsageHour.objects.get(instance_id=instance.pk).bytes == 9


def test_a_bill_by_percentile_is_the_same_after_its_minutes_were_dropped(instance: Instance, monday: datetime) -> None:
    by_percentile(instance)
    period = Period(start=monday - timedelta(days=3), end=monday)
    create_operations(instance, period.start)
    other = make_instance(instance.tenant, name="other")
    for number in range(0, 600, 7):
        create_usage(instance.pk, period.start + timedelta(minutes=number), produce=number, consume=2 * number)
        create_usage(other.pk, period.start + timedelta(minutes=number), produce=1)
    before = consumption.of_tenant(instance.tenant, period, with_rates=True)

    partitions.maintain(monday + KEPT)

    assert not UsageMinute.objects.exists()
    assert consumption.of_tenant(instance.tenant, period, with_rates=True) == before
    # Nobody else's are kept.
    assert set(UsagePoint.objects.values_list("instance_id", flat=True)) == {instance.pk}

    create_usage(instance.pk, period.start + timedelta(minutes=7), produce=1_000)
    (late,) = consumption.of_tenant(instance.tenant, period, with_rates=True)
    assert late.rate_points[0].bytes_in == before[0].rate_points[0].bytes_in + 1_000
    partitions.maintain(monday + KEPT)
    assert consumption.of_tenant(instance.tenant, period, with_rates=True) == [late]


def test_a_span_of_minutes_asks_only_the_partitions_of_its_weeks(instance: Instance, monday: datetime) -> None:
    made = partitions.maintain(monday).created
    rows = UsageMinute.objects.filter(
        instance_id=instance.pk, minute__gte=monday + timedelta(days=1), minute__lt=monday + timedelta(days=8)
    )
    plan = rows.explain()
    assert [name for name in made if name in plan] == made[:2]
    assert DEFAULT_PARTITION not in plan
    assert "_before_" not in plan


@pytest.mark.django_db(transaction=True)
def test_while_somebody_holds_the_table_nothing_waits_for_long_and_the_rest_is_done_later() -> None:
    now = timezone.now() + timedelta(days=100)
    with sink.exclusive(dsn.conninfo(), "cl-aaaaaaaa") as other, other.transaction():
        other.execute(f"SELECT FROM {weeks.TABLE} LIMIT 1")
        assert partitions.maintain(now).created == []
    try:
        assert partitions.maintain(now).created
    finally:
        put_back()


@pytest.mark.django_db(transaction=True)
def test_the_table_that_was_there_becomes_the_first_partition_and_can_be_put_together_again() -> None:
    executor = MigrationExecutor(connection)
    executor.migrate([("billing", "0014_alert_rules")])
    minute = timezone.now().replace(second=0, microsecond=0)
    for number in range(3):
        UsageMinute.objects.create(
            instance_id="ins-aaaaaaaa", minute=minute - timedelta(days=20 * number), topic="t", user="u",
            client_id="c", direction="produce", bytes=10 + number, requests=1,
        )  # fmt: skip
    rows = list(UsageMinute.objects.order_by("minute").values())
    try:
        put_back()
        assert list(UsageMinute.objects.order_by("minute").values()) == rows
        (first,) = partitions.existing_partitions()
        assert len(minutes_of(first.name)) == 3
        assert sum(UsageDay.objects.values_list("bytes", flat=True)) == 33
        new = UsageMinute.objects.create(
            instance_id="ins-aaaaaaaa", minute=minute, topic="other", user="u", client_id="c", direction="produce",
            bytes=1, requests=1,
        )  # fmt: skip
        assert new.pk > max(row["id"] for row in rows)
    finally:
        put_back()


def put_back() -> None:
    """Restores the tables of a new database."""
    executor = MigrationExecutor(connections["default"])
    if len(partitions.existing_partitions()) > 1:
        executor.migrate([("billing", "0014_alert_rules")])
        executor = MigrationExecutor(connections["default"])
    executor.migrate(executor.loader.graph.leaf_nodes())
