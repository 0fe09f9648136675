"""A single broker process: memory when idle, and the seconds from its start until it serves after a kill."""

from __future__ import annotations

import json
import time
import urllib.error
import urllib.request
from pathlib import Path
from typing import Any

import psutil

from benchmarks.product import Product

READY_TIMEOUT_S = 60.0


def measure(product: Product) -> dict[str, Any]:
    """Kills the last broker with SIGKILL, waits until the agent's replacement is ready, and returns the
    time that took.
    """
    pids = product.broker_pids()
    victim = psutil.Process(pids[-1])
    command = victim.cmdline()
    settings = json.loads(Path(command[command.index("--settings") + 1]).read_text())
    ready_url = f"http://{settings['bind_host']}:{settings['admin_port']}/readyz"
    idle_rss_mb = [round(psutil.Process(pid).memory_info().rss / 1e6) for pid in pids]
    killed_s = time.monotonic()
    victim.kill()
    deadline_s = killed_s + READY_TIMEOUT_S
    while time.monotonic() < deadline_s:
        replacement = set(product.broker_pids()) - set(pids)
        if replacement and _is_ready(ready_url):
            started_s = psutil.Process(replacement.pop()).create_time()
            return {
                "benchmark": "broker process",
                "idle_rss_mb": idle_rss_mb,
                "start_to_ready_s": round(time.time() - started_s, 2),
                "killed_to_ready_s": round(time.monotonic() - killed_s, 2),
            }
        time.sleep(0.02)
    raise SystemExit(f"the killed broker was not replaced within {READY_TIMEOUT_S} s")


def _is_ready(url: str) -> bool:
    try:
        with urllib.request.urlopen(url, timeout=1) as answer:
            return answer.status == 200
    except (urllib.error.URLError, ConnectionError, TimeoutError):
        return False
