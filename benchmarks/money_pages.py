"""The operator's billing pages with a year of invoices of many tenants: response time of each page, and of each CSV
export.

Rows are inserted in bulk, with the values that services write: each tenant has twelve invoices of eight lines, every
sixth of them unpaid, and an instance with traffic in each hour since thirty days before this month.
"""

from __future__ import annotations

import http.cookiejar
import re
import statistics
import time
import urllib.parse
import urllib.request
from collections.abc import Iterator
from typing import Any

from benchmarks.product import Product, run_in_shell

CALLS = 60
FILES = 5

FILL = """
import json, time
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from django.db import connection
from billing.invoices.periods import month_before, month_of
from billing.models import Invoice, InvoiceLine
from brokers.models import Cluster, Placement
from instances.models import Instance
from tenants.models import Tenant
now = datetime.now(UTC)
tenants = [Tenant(slug=f"money-{{n}}", name=f"Money {{n}} GmbH") for n in range({tenants})]
Tenant.objects.bulk_create(tenants, batch_size=1000)
cluster = Cluster.objects.order_by("pk").first()
instances = [Instance(tenant=tenant, name="money", plan="river", bandwidth_mb_s=80, storage_gb=600, partitions_max=600,
                      phase="failed") for tenant in tenants]
Instance.objects.bulk_create(instances, batch_size=1000)
Placement.objects.bulk_create([Placement(instance=instance, cluster=cluster, bandwidth_mb_s=80, storage_gb=600)
                               for instance in instances], batch_size=1000)
month, made, lines = month_before(month_of(now)), [], []
for age in range(12):
    for number, instance in enumerate(instances):
        is_open, total = (number + age) % 6 == 0, Decimal(number + 100) / 4
        due = month.end + timedelta(days=14)
        invoice = Invoice(tenant=instance.tenant, kind="invoice", number=f"MP-{{age}}-{{number}}",
            period_start=month.start, period_end=month.end, currency="USD" if number % 9 == 0 else "EUR",
            subtotal=total, tax_percent=0, tax=0, total=total, seller={{}}, buyer={{"email": "", "tenant": ""}},
            issued_at=month.end, due_at=due, state="issued" if is_open else "paid",
            closed_at=None if is_open else due, reference="" if is_open else "bank")
        made.append(invoice)
        lines += [InvoiceLine(invoice=invoice, position=p, kind="usage", instance_id=instance.pk, plan="river",
            meter="base", start=month.start, end=month.end, quantity=1, unit_price=total / 8, amount=total / 8)
            for p in range(1, 9)]
    month = month_before(month)
Invoice.objects.bulk_create(made, batch_size=1000)
InvoiceLine.objects.bulk_create(lines, batch_size=2000)
with connection.cursor() as cursor:
    cursor.execute('''
        INSERT INTO billing_usagehour (instance_id, hour, direction, bytes, requests)
        SELECT i.id, h, d, 1000000000, 10 FROM instances_instance i,
        generate_series(%s::timestamptz, %s, '1 hour') h, unnest(ARRAY['produce', 'consume', 'stored']) d
        WHERE i.name = 'money' ''', [month_of(now).start - timedelta(days=30), now - timedelta(hours=1)])
    hours = cursor.rowcount
    cursor.execute("ANALYZE")
print(json.dumps({{"invoices": len(made), "lines": len(lines), "hours": hours}}))
"""

MARGINS = """
import json, time
from datetime import UTC, datetime
from billing.reporting import margins
began = time.monotonic()
margins.store_use(datetime.now(UTC))
print(json.dumps({"worked_out_s": round(time.monotonic() - began, 2)}))
"""

PAGES = (
    ("revenue/", CALLS), ("revenue/?month=all", CALLS), ("revenue/?month=all&by=plan", CALLS),
    ("revenue/?month=all&q=money+9", CALLS), ("overdue/", CALLS), ("overdue/?age=over-90&page=3", CALLS),
    ("margins/", CALLS), ("month/", CALLS), ("revenue.csv?month=all", FILES), ("overdue.csv", FILES),
)  # fmt: skip


def measure(product: Product, tenants: int) -> Iterator[dict[str, Any]]:
    """Yields a line for the number of rows, one for the time of the task, and one for each page."""
    yield {"benchmark": "pages of money", "tenants": tenants, **run_in_shell(product, FILL.format(tenants=tenants))}
    yield {"benchmark": "margins of clusters", **run_in_shell(product, MARGINS)}
    opener, root = _sign_in(product)
    # A page of the panel without any figures: the part of the other pages' time that is due to the layout.
    yield {"benchmark": "the panel's frame", **_time_page(opener, f"{root}/operator/password_change/", CALLS)}
    for name, calls in PAGES:
        yield {"benchmark": name, **_time_page(opener, f"{root}/operator/billing/invoice/{name}", calls)}


def _sign_in(product: Product) -> tuple[urllib.request.OpenerDirector, str]:
    """Signs in as the operator that `manage.py up` created; returns the opener and the root URL."""
    opener = urllib.request.build_opener(urllib.request.HTTPCookieProcessor(http.cookiejar.CookieJar()))
    root = product.ready["console_url"].rstrip("/")
    page = opener.open(f"{root}/operator/login/").read().decode()
    token_match = re.search(r'name="csrfmiddlewaretoken" value="([^"]+)"', page)
    assert token_match is not None, "the login page has no form"
    body = {"csrfmiddlewaretoken": token_match[1], **product.ready["operator"], "next": "/operator/"}
    answer = opener.open(f"{root}/operator/login/", urllib.parse.urlencode(body).encode())
    assert answer.url.endswith("/operator/"), f"not signed in: {answer.url}"
    return opener, root


def _time_page(opener: urllib.request.OpenerDirector, address: str, calls: int) -> dict[str, float]:
    """Returns the response times of a page, until its last byte."""
    took_ms = []
    for _ in range(calls):
        began_s = time.perf_counter()
        size_bytes = len(opener.open(address).read())
        took_ms.append((time.perf_counter() - began_s) * 1_000)
    took_ms.sort()
    return {
        "p50_ms": round(statistics.median(took_ms), 1),
        "p95_ms": round(took_ms[min(calls - 1, int(calls * 0.95))], 1),
        "bytes": size_bytes,
    }
