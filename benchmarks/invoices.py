"""A month of many tenants: time to issue all their invoices, to recompute one, and to list a page.

Tenants, instances, operations and minute rows are inserted by SQL as services and the pipeline write them: each tenant
has one instance with ten topics, each written to once an hour, and half of them read. The same usage is recomputed from
the lake by `benchmarks.lake_replay`.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Iterator
from typing import Any

from benchmarks import lake_replay
from benchmarks.product import Product, run_in_shell

TOPICS = 10
CALLS = 60

FILL = """
import json, time
from datetime import UTC, datetime, timedelta
from django.db import connection
from instances.models import Instance, Operation
from tenants.models import Tenant
from billing.invoices.periods import month_before, month_of
month = month_before(month_of(datetime.now(UTC)))
demo = Instance.objects.select_related("tenant").order_by("created_at").first()
tenants = [Tenant(slug=f"bench-{{n}}", name=f"Bench {{n}}") for n in range({tenants})]
Tenant.objects.bulk_create(tenants, batch_size=1000)
instances = [Instance(tenant=tenant, name="bench", plan="river", bandwidth_mb_s=80, storage_gb=600, partitions_max=600,
                      phase="failed", created_at=month.start) for tenant in tenants]
instances.append(Instance(tenant=demo.tenant, name="bench", plan="river", bandwidth_mb_s=80, storage_gb=600,
                          partitions_max=600, phase="failed", created_at=month.start))
Instance.objects.bulk_create(instances, batch_size=1000)
# Their creation is the time of the row, whatever it is given.
Instance.objects.filter(name="bench").update(created_at=month.start)
Operation.objects.bulk_create(
    [Operation(tenant=instance.tenant, instance=instance, type="instance.create", state="succeeded", generation=1,
               plan="river", bandwidth_mb_s=80, storage_gb=600, is_suspended=False, asked_by="bench",
               created_at=month.start, finished_at=month.start)
     for instance in instances], batch_size=1000)
began = time.monotonic()
with connection.cursor() as cursor:
    cursor.execute('''
        INSERT INTO billing_usageminute (instance_id, minute, topic, "user", client_id, direction, bytes, requests)
        SELECT i.id, m, 'topic-' || t, 'app', 'client', d, 1000000 + t, 10
        FROM instances_instance i, generate_series(%s::timestamptz, %s, '1 hour') m, generate_series(1, {topics}) t,
             unnest(ARRAY['produce', 'consume']) d
        WHERE i.name = 'bench' AND (d = 'produce' OR t %% 2 = 0)''', [month.start, month.end - timedelta(hours=1)])
    rows = cursor.rowcount
    cursor.execute('''
        INSERT INTO billing_usagehour (instance_id, hour, direction, bytes, requests)
        SELECT instance_id, date_trunc('hour', minute, 'UTC'), direction, sum(bytes), sum(requests)
        FROM billing_usageminute GROUP BY 1, 2, 3 ON CONFLICT DO NOTHING''')
    cursor.execute('''
        INSERT INTO billing_usageday (instance_id, day, topic, "user", client_id, direction, bytes, requests)
        SELECT instance_id, (minute AT TIME ZONE 'UTC')::date, topic, "user", client_id, direction, sum(bytes),
               sum(requests)
        FROM billing_usageminute GROUP BY 1, 2, 3, 4, 5, 6 ON CONFLICT DO NOTHING''')
    cursor.execute("ANALYZE billing_usageminute")
    cursor.execute("ANALYZE billing_usageday")
print(json.dumps({{"rows": rows, "filled_s": round(time.monotonic() - began, 1), "month": f"{{month.start:%Y-%m}}"}}))
"""

# The demo tenant's own invoice waits until the pipeline has read its cluster's usage.
COMPLETE_WITHIN_S = 120

ISSUE = f"""
import json, resource, time
from datetime import UTC, datetime
from billing.invoices.closing import close_month

def cpu_s():
    used = resource.getrusage(resource.RUSAGE_SELF)
    return used.ru_utime + used.ru_stime

before_s, began_s = cpu_s(), time.monotonic()
done = close_month(datetime.now(UTC))
figures = {{"issued": done.issued, "waiting": len(done.waiting), "issued_s": round(time.monotonic() - began_s, 1),
           "cpu_s": round(cpu_s() - before_s, 1)}}
while done.waiting and time.monotonic() - began_s < {COMPLETE_WITHIN_S}:
    time.sleep(1)
    done = close_month(datetime.now(UTC))
print(json.dumps(figures | {{"waiting_at_the_end": len(done.waiting)}}))
"""


def measure(product: Product, tenants: int) -> Iterator[dict[str, Any]]:
    """Yields lines of figures; calls are made as the demo tenant, which has the same instance besides its own."""
    filled = run_in_shell(product, FILL.format(tenants=tenants, topics=TOPICS))
    issued = run_in_shell(product, ISSUE)
    yield {"benchmark": "invoices of a month", "tenants": tenants, **filled, **issued}
    if issued["issued"] + issued["waiting"] != tenants + 1 or issued["waiting_at_the_end"]:
        raise SystemExit(f"not each of {tenants + 1} tenants has an invoice")
    invoice = product.call("GET", "/invoices")["items"][0]["id"]
    span = f"start={filled['month']}-01T00:00:00Z&end={filled['month']}-28T00:00:00Z"
    for name, path, calls in (
        ("an invoice worked out again", f"/invoices/{invoice}/recompute", 5),
        ("a page of invoices", "/invoices", CALLS),
        ("lines of an invoice", f"/invoices/{invoice}/lines", CALLS),
        ("costs of the month by topic", f"/costs?{span}&group_by=topic", CALLS),
        ("costs of the month by day", f"/costs?{span}&group_by=day", CALLS),
        ("the draft", "/invoices/draft", CALLS),
    ):
        yield {"benchmark": name, **_timed(product, path, calls)}
    yield from lake_replay.measure(product, tenants + 1, TOPICS)


def _timed(product: Product, path: str, calls: int) -> dict[str, float]:
    took_ms = []
    for _ in range(calls):
        started_s = time.perf_counter()
        product.call("GET", path)
        took_ms.append((time.perf_counter() - started_s) * 1_000)
    took_ms.sort()
    return {
        "p50_ms": round(statistics.median(took_ms), 1),
        "p95_ms": round(took_ms[min(len(took_ms) - 1, int(len(took_ms) * 0.95))], 1),
    }
