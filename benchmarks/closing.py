"""Time to close successive months of many tenants: by how much a month takes longer when other months precede it.

Each tenant has one instance of a plan with prices by volume and by storage, whose bytes and levels are known by the
hour. Months are closed one after the other; then usage of the first month arrives late for some of the tenants.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from benchmarks.product import Product, run_in_shell

# More months than the number of recent invoices that are always compared with their usage.
MONTHS = 5
# One in this number of tenants has late usage of the first month.
ONE_LATE_OF = 20

FILL = """
import json, time
from datetime import UTC, datetime
from decimal import Decimal
from django.db import connection
from instances.models import Instance, Operation
from tenants.models import Tenant
from billing.invoices.periods import month_before, month_of
from billing.models import Plan, Price, PriceComponent
months = [month_before(month_of(datetime.now(UTC)))]
while len(months) < {months}:
    months.insert(0, month_before(months[0]))
start, end = months[0].start, months[-1].end
plan = Plan.objects.create(code="closing", name="Closing", bandwidth_mb_s=20, storage_gb=100, bandwidth_mb_s_max=20,
                           storage_gb_max=100, partitions_max=100)
price = Price.objects.create(plan=plan, effective_from=start, base_per_hour=Decimal("0.1"),
                             per_mb_s_hour=Decimal("0.009"), per_gb_hour=Decimal("0.0002"))
for meter in ("bytes_in", "bytes_out", "stored"):
    PriceComponent.objects.create(price=price, meter=meter, tiers=[[None, "0.02", "0"]])
tenants = [Tenant(slug=f"closing-{{n}}", name=f"Closing {{n}}") for n in range({tenants})]
Tenant.objects.bulk_create(tenants, batch_size=1000)
instances = [Instance(tenant=tenant, name="closing", plan="closing", bandwidth_mb_s=20, storage_gb=100,
                      partitions_max=100, phase="failed", created_at=start) for tenant in tenants]
Instance.objects.bulk_create(instances, batch_size=1000)
Instance.objects.filter(name="closing").update(created_at=start)
Operation.objects.bulk_create(
    [Operation(tenant=instance.tenant, instance=instance, type="instance.create", state="succeeded", generation=1,
               plan="closing", bandwidth_mb_s=20, storage_gb=100, is_suspended=False, asked_by="bench",
               created_at=start, finished_at=start)
     for instance in instances], batch_size=1000)
began = time.monotonic()
with connection.cursor() as cursor:
    cursor.execute('''
        INSERT INTO billing_usagehour (instance_id, hour, direction, bytes, requests)
        SELECT i.id, h, d, 1000000 + extract(epoch FROM h)::bigint %% 7919, 10
        FROM instances_instance i, generate_series(%s::timestamptz, %s::timestamptz - interval '1 hour', '1 hour') h,
             unnest(ARRAY['produce', 'consume', 'stored']) d
        WHERE i.name = 'closing' ORDER BY 1, 2, 3''', [start, end])
    rows = cursor.rowcount
    cursor.execute("ANALYZE billing_usagehour")
print(json.dumps({{"rows": rows, "filled_s": round(time.monotonic() - began, 1)}}))
"""

CLOSE = """
import json, resource, time
from datetime import UTC, datetime, timedelta
from django.db import connection
from billing.invoices.closing import close_month
from billing.invoices.periods import month_before, month_of
from billing.models import InvoiceLine

def cpu_s():
    used = resource.getrusage(resource.RUSAGE_SELF)
    return used.ru_utime + used.ru_stime

months = [month_before(month_of(datetime.now(UTC)))]
while len(months) < {months}:
    months.insert(0, month_before(months[0]))
figures = []
for number, month in enumerate(months):
    if number == len(months) - 1:
        with connection.cursor() as cursor:
            cursor.execute('''
                UPDATE billing_usagehour SET bytes = bytes + 10^13 WHERE hour = %s AND direction = 'stored'
                AND instance_id IN (
                    SELECT id FROM (SELECT id, row_number() OVER (ORDER BY id) AS n FROM instances_instance
                                    WHERE name = 'closing') AS numbered WHERE n %% {one_of} = 0)''', [months[0].start])
    before_s, began_s = cpu_s(), time.monotonic()
    done = close_month(datetime.now(UTC), period=month)
    figures.append({{"month": number + 1, "issued": done.issued, "took_s": round(time.monotonic() - began_s, 1),
                    "cpu_s": round(cpu_s() - before_s, 1)}})
late = InvoiceLine.objects.filter(kind="adjustment").count()
print(json.dumps({{"months": figures, "late_lines": late}}))
"""


def measure(product: Product, tenants: int) -> Iterator[dict[str, Any]]:
    """Yields a line for each month, and one for the late usage."""
    filled = run_in_shell(product, FILL.format(tenants=tenants, months=MONTHS))
    yield {"benchmark": "months to close", "tenants": tenants, "months": MONTHS, **filled}
    closed = run_in_shell(product, CLOSE.format(months=MONTHS, one_of=ONE_LATE_OF))
    for month in closed["months"]:
        yield {"benchmark": "a month closed after others", **month}
        if month["issued"] < tenants:
            raise SystemExit(f"not each of {tenants} tenants has an invoice")
    yield {
        "benchmark": "late levels of the first month",
        "lines": closed["late_lines"],
        "expected": tenants // ONE_LATE_OF,
    }
