"""Pages of the operator panel and lists of REST over a large fleet: time of each, with its queries and their time.

  python -m benchmarks.fleet_pages [--clusters 100] [--instances 10000] [--calls 10] [--only placement] [--profile]

It needs no running product: it starts its own PostgreSQL and Redis, writes the rows in bulk
(`tests.testkit.large_fleet`), and requests the pages in this process. `--profile` prints a profile of each page.
"""

from __future__ import annotations

import argparse
import cProfile
import gc
import json
import os
import pstats
import re
import statistics
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import timedelta
from pathlib import Path
from typing import Any, Final

from benchmarks import environment
from config.embedded.postgres import EmbeddedPostgres
from config.embedded.process import wait_until
from config.embedded.redis import EmbeddedRedis

START_TIMEOUT_S: Final = 60.0
CALLS: Final = 10
TARGET_P95_MS: Final = 200.0
TENANTS: Final = 100
SILENCE_DURATION: Final = timedelta(hours=1)
PROFILE_LINES: Final = 70
SLOW_QUERY_S: Final = 0.005
SHOWN_SQL_CHARS: Final = 600

RequestFunction = Callable[[str], bytes]


@contextmanager
def services(directory: Path) -> Iterator[None]:
    """Starts PostgreSQL and Redis, and sets up Django with them."""
    postgres = EmbeddedPostgres(directory / "postgres", log_file=directory / "postgres.log", durable=False)
    redis = EmbeddedRedis(directory / "redis", password="benchmark", log_file=directory / "redis.log")
    postgres.start()
    redis.start()
    try:
        wait_until(postgres.is_ready, child=postgres.child, timeout_s=START_TIMEOUT_S)
        wait_until(redis.is_ready, child=redis.child, timeout_s=START_TIMEOUT_S)
        os.environ.update(
            DJANGO_SETTINGS_MODULE="config.settings", DATABASE_URL=postgres.url, REDIS_URL=redis.url,
            PENSTOCK_STATE_DIR=str(directory / "state"),
        )  # fmt: skip
        import django
        from django.core.management import call_command

        django.setup()
        call_command("migrate", verbosity=0)
        yield
    finally:
        redis.child.stop()
        postgres.child.stop()


def measure(args: argparse.Namespace) -> Iterator[dict[str, Any]]:
    """Yields a line for the rows, and one for each page."""
    from django.conf import settings
    from django.db import connection
    from django.test import Client
    from django.utils import timezone

    from brokers.models import Broker, Host
    from tenants.models import User
    from tests.testkit.api_cases import PASSWORD, ROOT, make_tenant, make_token, owner_of
    from tests.testkit.large_fleet import make_large_fleet, panel_addresses, rest_addresses

    settings.PASSWORD_HASHERS = ["django.contrib.auth.hashers.MD5PasswordHasher"]
    settings.ALLOWED_HOSTS = ["testserver"]
    tenants = [make_tenant(f"Tenant {number}") for number in range(TENANTS)]
    fleet = make_large_fleet(tenants, clusters=args.clusters, instances=args.instances)
    with connection.cursor() as cursor:
        cursor.execute("ANALYZE")
    # Rows that stay in memory here would make each collection of garbage long, as in no web process.
    gc.collect()
    gc.freeze()
    rows = {"clusters": len(fleet.clusters), "hosts": len(fleet.hosts), "instances": len(fleet.instances)}
    yield {"benchmark": "pages of a fleet", **rows}

    browser = Client()
    browser.force_login(User.objects.create_superuser("ops@example.com", PASSWORD))
    owner = owner_of(tenants[0])
    owner.user.is_staff = owner.user.is_superuser = True
    owner.user.save()
    client = Client(headers={"Authorization": f"Bearer {make_token(owner, ['operator'])}"})

    def panel(address: str) -> bytes:
        response = browser.get(address)
        assert response.status_code == 200, (address, response.status_code)
        return bytes(response.content)

    def rest(address: str) -> bytes:
        response = client.get(f"{ROOT}{address}")
        assert response.status_code == 200, (address, response.content)
        return bytes(response.content)

    def set_last_answers(ago: timedelta) -> None:
        """Sets the last answers of all brokers and agents to the time `ago` before now."""
        answered_at = timezone.now() - ago
        Broker.objects.update(observed_at=answered_at)
        Host.objects.update(agent_seen_at=answered_at)

    for request_page, addresses in ((panel, panel_addresses(fleet)), (rest, rest_addresses(fleet))):
        for address in addresses:
            if re.search(args.only, address):
                set_last_answers(timedelta())
                yield _time_page(request_page, address, args)
    set_last_answers(SILENCE_DURATION)
    index_page = next(iter(panel_addresses(fleet)))
    yield _time_page(panel, index_page, args) | {"page": f"{index_page} while all brokers and agents are silent"}


def _time_page(request_page: RequestFunction, address: str, args: argparse.Namespace) -> dict[str, Any]:
    """Returns the times of a page, and the queries of one of its calls."""
    from django.db import connection
    from django.test.utils import CaptureQueriesContext

    size_bytes = len(request_page(address))
    took_ms, cpu_ms = [], []
    for _ in range(args.calls):
        began_s, cpu_began_s = time.perf_counter(), time.process_time()
        request_page(address)
        took_ms.append((time.perf_counter() - began_s) * 1_000)
        cpu_ms.append((time.process_time() - cpu_began_s) * 1_000)
    with CaptureQueriesContext(connection) as captured:
        request_page(address)
    queries = list(captured.captured_queries)
    if args.profile:
        _print_profile(request_page, address, queries)
    took_ms.sort()
    p95_ms = took_ms[min(args.calls - 1, int(args.calls * 0.95))]
    return {
        "page": address,
        "p50_ms": round(statistics.median(took_ms)),
        "p95_ms": round(p95_ms),
        # Without PostgreSQL, and whatever else the machine does.
        "cpu_p50_ms": round(statistics.median(cpu_ms)),
        "queries": len(queries),
        "queries_ms": round(sum(float(query["time"]) for query in queries) * 1_000),
        "bytes": size_bytes,
        "is_within_aim": p95_ms <= TARGET_P95_MS,
    }


def _print_profile(request_page: RequestFunction, address: str, queries: list[dict[str, str]]) -> None:
    for query in queries:
        if float(query["time"]) >= SLOW_QUERY_S:
            print(f"{query['time']} s: {query['sql'][:SHOWN_SQL_CHARS]}")
    profile = cProfile.Profile()
    profile.runcall(request_page, address)
    pstats.Stats(profile).sort_stats("tottime").print_stats(PROFILE_LINES)
    pstats.Stats(profile).sort_stats("cumulative").print_stats(PROFILE_LINES)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--clusters", type=int, default=100, help="with three hosts each")
    parser.add_argument("--instances", type=int, default=10_000)
    parser.add_argument("--calls", type=int, default=CALLS, help="of each page")
    parser.add_argument("--only", default="", help="pattern of the addresses to measure")
    parser.add_argument("--profile", action="store_true", help="print slow queries and functions of each page")
    args = parser.parse_args()
    print(environment.line(), flush=True)
    with tempfile.TemporaryDirectory(prefix="penstock-bench-") as scratch, services(Path(scratch)):
        for figures in measure(args):
            print(json.dumps(figures), flush=True)


if __name__ == "__main__":
    main()
