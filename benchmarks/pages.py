"""Cost of a page of a long list through the REST API: 50 of very many instances, and 50 of an instance's topics."""

from __future__ import annotations

import os
import statistics
import subprocess
import sys
import time
from typing import Any

from confluent_kafka.admin import AdminClient, NewTopic

from benchmarks.product import CLONE, Product, bootstrap_of

PAGE_ROWS = 50
# Fewer than the reads per minute that one token may make.
PAGES_READ = 100
TOPICS = 500
BANDWIDTH_MB_S = 600  # a plan with enough partitions
BATCH_ROWS = 2_000

# Rows that no worker processes: a failed instance has no brokers behind it, and is still listed.
FILL = """
from instances.models import Instance
tenant = Instance.objects.get(pk={instance!r}).tenant
rows = (Instance(tenant=tenant, name=f"listed-{{n}}", plan="small", bandwidth_mb_s=1, storage_gb=1, partitions_max=3,
                 phase="failed", reason="no_room") for n in range({count}))
Instance.objects.bulk_create(rows, batch_size={batch})
"""


def measure(product: Product, count: int) -> dict[str, Any]:
    """Returns milliseconds per page, for `count` instances and then for `TOPICS` topics of one instance."""
    instance_id = product.create_instance(name="pages", bandwidth_mb_s=BANDWIDTH_MB_S, storage_gb=20)
    admin = AdminClient({"bootstrap.servers": bootstrap_of(product.wait_running(instance_id))})
    for creation in admin.create_topics([NewTopic(f"topic-{number:05d}", 1, 1) for number in range(TOPICS)]).values():
        creation.result(60)
    script = FILL.format(instance=instance_id, count=count, batch=BATCH_ROWS)
    subprocess.run(
        [sys.executable, str(CLONE / "manage.py"), "shell", "-v", "0", "-c", script],
        check=True, cwd=CLONE, env={**os.environ, "PENSTOCK_STATE_DIR": str(product.state_dir)},
    )  # fmt: skip
    return {
        "benchmark": f"a page of {PAGE_ROWS}",
        "instances": count,
        **_time_pages(product, "/instances", "instances"),
        "topics": TOPICS,
        **_time_pages(product, f"/instances/{instance_id}/topics", "topics"),
    }


def _time_pages(product: Product, path: str, name: str) -> dict[str, float]:
    """Reads the pages of a list one after the other, and starts again after the last one."""
    took_ms: list[float] = []
    token = ""
    while len(took_ms) < PAGES_READ:
        began_s = time.perf_counter()
        page = product.call("GET", f"{path}?page_size={PAGE_ROWS}" + (f"&page_token={token}" if token else ""))
        took_ms.append((time.perf_counter() - began_s) * 1_000)
        token = page["next_page_token"] or ""
    percentiles = statistics.quantiles(took_ms, n=20)
    return {f"{name}_p50_ms": round(statistics.median(took_ms), 1), f"{name}_p95_ms": round(percentiles[-1], 1)}
