"""Time to recompute a month of many tenants from the lake, by days, and the time of one invoice afterwards.

The lake is written from the same counters as the minute rows of `benchmarks.invoices`: one report per counter and hour,
one file per day, as the pipeline leaves them after merging.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final

from benchmarks.product import Product, run_in_shell

# Days of the month after which a line is printed. The time in seconds grows in proportion to the rows.
CURVE_DAYS: Final = (1, 4, 8, 16, 31)
TENANTS_EXTRAPOLATED: Final = 10_000

FILL = """
import json, time
from datetime import UTC, datetime
import pyarrow as pa, pyarrow.compute as pc
from django.conf import settings
from billing.invoices.periods import month_before, month_of
from billing.lake import files
from billing.lake.address import open_lake
from billing.models import LakeFile
from brokers.contract.usage import COUNTER_KEY
from instances.models import Instance

month, place = month_before(month_of(datetime.now(UTC))), open_lake(settings.LAKE_URL)
ids = list(Instance.objects.filter(name="bench").values_list("id", flat=True))
counters = [(t % 3 + 1, 5, id, f"topic-{{t}}", "app", "client", d)
            for id in ids for t in range(1, {topics} + 1) for d in ("produce", "consume")
            if d == "produce" or t % 2 == 0]
added_bytes = [1_000_000 + int(counter[3].removeprefix("topic-")) for counter in counters]
hour_ms = 3_600_000
start_ms = int(month.start.timestamp() * 1000)
types = dict(broker_id=pa.int32(), broker_epoch=pa.int64())
counter_columns = {{name: pa.array(values, types.get(name, pa.string()))
                   for name, values in zip(COUNTER_KEY, zip(*counters))}}
hours = pa.array([hour for _ in counters for hour in range(24)], pa.int64())
counter_indexes = pa.array([number for number in range(len(counters)) for _ in range(24)], pa.int64())
keys = {{name: column.take(counter_indexes) for name, column in counter_columns.items()}}
added_bytes = pa.array(added_bytes, pa.int64()).take(counter_indexes)
began, rows = time.monotonic(), 0
for day in range(-1, (month.end - month.start).days):
    # The lake counts as complete for a month only if it begins earlier, so one report is written for the day before.
    sequence = pc.add(hours, 24 * day + 1)
    table = pa.table({{
        **keys, "sequence": sequence, "at_ms": pc.add(pc.multiply(pc.add(hours, 24 * day), hour_ms), start_ms + 60_000),
        "bytes": pc.multiply(added_bytes, sequence), "requests": pc.multiply(sequence, 10),
        "added_bytes": added_bytes,
        "added_requests": pa.repeat(pa.scalar(10, pa.int64()), len(added_bytes)),
    }}).select(files.COLUMNS)
    if day < 0:
        table = table.slice(23, 1)
    # No cluster has the id "bench", so the pipeline writes no file of the same name.
    for written in files.write(place, "bench", {{0: (day, day + 1)}}, table):
        LakeFile.objects.create(path=written.path, cluster_id=written.cluster_id, day=written.day, rows=written.rows,
                                added_bytes=written.added_bytes, schema_version=files.SCHEMA_VERSION)
        rows += written.rows
print(json.dumps({{"reports": rows, "filled_s": round(time.monotonic() - began, 1)}}))
"""

REPLAY = """
import json, resource, time
from datetime import UTC, datetime, timedelta
from django.conf import settings
from django.db.models import Sum
from billing.invoices.periods import month_before, month_of
from billing.invoices.recompute import recompute
from billing.lake import reconciliation, replay
from billing.lake.address import open_lake
from billing.models import Invoice

def cpu_s():
    used = resource.getrusage(resource.RUSAGE_SELF)
    return used.ru_utime + used.ru_stime

month, place = month_before(month_of(datetime.now(UTC))), open_lake(settings.LAKE_URL)
began, cpu, points, differing = time.monotonic(), cpu_s(), [], 0
days = (month.end - month.start).days
for day in range(days):
    differing += len(reconciliation.reconcile(place, (month.start + timedelta(days=day)).date()))
    if day + 1 in {curve} or day + 1 == days:
        rows = replay.files_of(month.start, month.start + timedelta(days=day + 1)).aggregate(sum=Sum("rows"))["sum"]
        points.append({{"days": day + 1, "rows": rows, "seconds": round(time.monotonic() - began, 1),
                       "cpu_s": round(cpu_s() - cpu, 1), "hours_that_differ": differing}})
began, cpu = time.monotonic(), cpu_s()
recomputation = recompute(Invoice.objects.filter(inputs__isnull=False, period_start=month.start).latest("number"))
invoice = {{"seconds": round(time.monotonic() - began, 1), "cpu_s": round(cpu_s() - cpu, 1),
           "is_replayed": recomputation.is_replayed, "is_equal": recomputation.is_equal,
           "rss_mb_max": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // 1024}}
print(json.dumps({{"curve": points, "invoice": invoice}}))
"""


def measure(product: Product, tenants: int, topics: int) -> Iterator[dict[str, Any]]:
    """Yields a line for the content of the lake, one for each point of the curve, its extrapolation, and one for an
    invoice.

    Raises:
        SystemExit: the lake and the tables differ, or the invoice differs.
    """
    yield {"benchmark": "a month in the lake", **run_in_shell(product, FILL.format(topics=topics))}
    result = run_in_shell(product, REPLAY.format(curve=CURVE_DAYS))
    for point in result["curve"]:
        yield {"benchmark": "days worked out again", **point, "us_per_row": _us_per_row(point)}
    whole = result["curve"][-1]
    yield {
        "benchmark": "extrapolated", "tenants": TENANTS_EXTRAPOLATED,
        "rows": (rows := whole["rows"] * TENANTS_EXTRAPOLATED // tenants),
        "seconds": round(_us_per_row(whole) * rows / 1e6),
    }  # fmt: skip
    yield {"benchmark": "an invoice worked out again, lake and all", **result["invoice"]}
    if whole["hours_that_differ"] or not (result["invoice"]["is_equal"] and result["invoice"]["is_replayed"]):
        raise SystemExit("lake and tables do not say the same")


def _us_per_row(point: dict[str, Any]) -> float:
    return round(point["seconds"] * 1e6 / point["rows"], 2)
