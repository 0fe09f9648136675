"""A run of an archive in a process of its own, which ends with SIGKILL at a named point of the run.

python -m tests.component.pipeline.archive_driver SETTINGS.json POINT

Spark is started first; the run begins with a line on standard input.
"""

from __future__ import annotations

import json
import os
import signal
import sys
from pathlib import Path

import django


def main() -> None:
    given = json.loads(Path(sys.argv[1]).read_text())
    deadly = sys.argv[2]
    django.setup()
    from django.conf import settings
    from django.db import connection
    from django.utils import timezone

    from archives import running
    from archives.models import Archive
    from billing.pipeline import spark

    connection.settings_dict.update(given["database"])
    settings.ARCHIVE_ROOT = Path(given["root"])
    settings.SECRET_KEY = given["secret_key"]

    def at_point(point: str) -> None:
        if point == deadly:
            os.kill(os.getpid(), signal.SIGKILL)

    session = spark.session(master="local[2]", local_dir=given["local_dir"])
    sys.stdin.readline()
    archive = Archive.objects.get(pk=given["archive"])
    running.run_one(lambda: session, archive, timezone.now(), at_point=at_point)


if __name__ == "__main__":
    main()
