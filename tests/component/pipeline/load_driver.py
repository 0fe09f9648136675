"""Runs of an archive into a database that end with SIGKILL at named points, one process each.

python -m tests.component.pipeline.load_driver SETTINGS.json POINT:COUNT…

Each process is forked from one that has started Django, and dies when it reaches its point for the given time.
"""

from __future__ import annotations

import json
import os
import signal
import sys
from ipaddress import ip_network
from pathlib import Path
from typing import Any

import django


def main() -> None:
    given = json.loads(Path(sys.argv[1]).read_text())
    django.setup()
    from django.conf import settings
    from django.db import connection

    connection.settings_dict.update(given["database"])
    settings.SECRET_KEY = given["secret_key"]
    settings.OUTBOUND_CA_FILE = given["ca_file"]
    settings.OUTBOUND_PRIVATE_ADDRESSES = [ip_network("127.0.0.0/8")]
    for wanted in sys.argv[2:]:
        point, _, count = wanted.partition(":")
        child = os.fork()
        if child == 0:
            _run(given, point, int(count))
            os._exit(0)
        _, status = os.waitpid(child, 0)
        if not os.WIFSIGNALED(status) or os.WTERMSIG(status) != signal.SIGKILL:
            raise SystemExit(f"{wanted}: status {status}")


def _run(given: dict[str, Any], deadly: str, count: int) -> None:
    from django.utils import timezone

    from archives import limits, running
    from archives.models import Archive
    from tests.component.pipeline.archived import InThisProcess

    limits.BATCH_RECORDS_MAX = given["batch_records"]  # type: ignore[misc]
    left = [count]

    def at_point(point: str) -> None:
        left[0] -= point == deadly
        if not left[0]:
            os.kill(os.getpid(), signal.SIGKILL)

    session: Any = InThisProcess()
    report = running.run_one(
        lambda: session, Archive.objects.get(pk=given["archive"]), timezone.now(), at_point=at_point
    )
    sys.stderr.write(f"{deadly} was not reached {count} times: {report}\n")


if __name__ == "__main__":
    main()
