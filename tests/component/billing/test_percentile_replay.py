"""Recomputation of an invoice with a price by percentile, from the lake."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from django.test import override_settings

from billing import services
from billing.invoices import issuing
from billing.invoices.periods import month_of
from billing.invoices.recompute import recompute
from billing.lake import files
from billing.lake.address import open_lake
from billing.models import Invoice, LakeFile, Price, PriceComponent
from tenants.actors import system_actor
from tests.testkit.api_cases import make_member
from tests.testkit.billing import create_operations, create_usage
from tests.testkit.instances import make_instance

pytestmark = pytest.mark.django_db

NOW = datetime(2026, 3, 1, 3, tzinfo=UTC)
FEBRUARY = month_of(datetime(2026, 2, 5, tzinfo=UTC))
# A day on the plan: of 288 points the 15th largest is charged.
POINTS = [FEBRUARY.start + timedelta(minutes=5) * n for n in range(20)]
BYTES = 3 * 10**9
NUMBERS = ("broker_id", "broker_epoch", "sequence", "at_ms", "bytes", "requests", "added_bytes", "added_requests")


def reports(instance_id: str, minutes: list[datetime], added: int) -> pa.Table:
    """Returns reports of one counter that grew by `added` in each of these minutes."""
    rows: list[dict[str, Any]] = [
        {
            "broker_id": 1, "broker_epoch": 5, "instance_id": instance_id, "topic": "t", "user": "u", "client_id": "c",
            "direction": "produce", "sequence": number, "at_ms": int(at.timestamp() * 1000) + 30_000,
            "bytes": number * added, "requests": number, "added_bytes": added, "added_requests": 1,
        }
        for number, at in enumerate(minutes, start=1)
    ]  # fmt: skip
    types = {name: pa.int64() if name in NUMBERS else pa.string() for name in files.COLUMNS}
    return pa.table({name: pa.array([row[name] for row in rows], type=types[name]) for name in files.COLUMNS})


def in_lake(url: str, instance_id: str, added: int) -> None:
    """Writes the reports of the month and a file of the day before, so that the lake covers the month."""
    place = open_lake(url)
    before = reports("ins-zzzzzzzz", [FEBRUARY.start - timedelta(hours=3)], 1)
    for number, table in enumerate((before, reports(instance_id, POINTS, added))):
        for written in files.write(place, f"cl-{number}", {0: (0, 20)}, table):
            LakeFile.objects.create(
                path=written.path, cluster_id=written.cluster_id, day=written.day, rows=written.rows,
                added_bytes=written.added_bytes, schema_version=files.SCHEMA_VERSION,
            )  # fmt: skip


def invoiced() -> tuple[Invoice, str]:
    services.ensure_default_plans()
    price = Price.objects.create(
        plan_id="brook", effective_from=FEBRUARY.start, base_per_hour=Decimal(0), per_mb_s_hour=Decimal(0),
        per_gb_hour=Decimal(0),
    )  # fmt: skip
    PriceComponent.objects.create(price=price, meter="bandwidth_p95", tiers=[[None, "100", "0"]])
    tenant = make_member().tenant
    instance = make_instance(tenant)
    create_operations(instance, FEBRUARY.start, FEBRUARY.start + timedelta(days=1))
    for at in POINTS:
        create_usage(instance.pk, at, produce=BYTES)
    invoice = issuing.issue(acting=system_actor("test"), tenant=tenant, period=FEBRUARY, now=NOW)
    assert invoice is not None
    # 10 MB/s x 100.00 / 28 days.
    assert str(invoice.subtotal) == "35.71"
    return invoice, instance.pk


def test_a_percentile_line_is_replayed_from_the_lake_to_the_cent(tmp_path: Path) -> None:
    invoice, instance_id = invoiced()
    url = (tmp_path / "lake").as_uri()
    in_lake(url, instance_id, BYTES)
    with override_settings(LAKE_URL=url, USAGE_MINUTES_KEPT_DAYS=9_999):
        found = recompute(invoice)
    assert (found.is_replayed, found.is_equal) == (True, True)


def test_a_percentile_that_the_lake_does_not_have_is_a_difference(tmp_path: Path) -> None:
    invoice, instance_id = invoiced()
    url = (tmp_path / "lake").as_uri()
    in_lake(url, instance_id, BYTES // 2)
    with override_settings(LAKE_URL=url, USAGE_MINUTES_KEPT_DAYS=9_999):
        found = recompute(invoice)
    assert [(each.source, each.meter, str(each.recomputed)) for each in found.differences] == [
        ("lake", "bandwidth_p95", "17.86")
    ]
