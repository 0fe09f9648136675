"""Inspects log directories: `manage.py log dump|verify|recover DIRECTORY`.

The work is done in a separate process (`python -m brokers.engine.inspect`): the control plane imports no engine code.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
from typing import Any

from django.conf import settings
from django.core.management.base import BaseCommand, CommandParser

MODULE = "brokers.engine.inspect"


class Command(BaseCommand):
    """Passes its arguments on and exits with the same exit code: 0 no faults, 1 faults, 2 not readable."""

    help = "Dump, verify or recover a partition's directory or a whole log directory; see `log dump --help`."
    requires_system_checks: list[str] = []  # noqa: RUF012 (Django's own way to say it)

    def add_arguments(self, parser: CommandParser) -> None:
        parser.add_argument("arguments", nargs=argparse.REMAINDER, help="dump|verify|recover DIRECTORY [options]")

    def handle(self, *args: Any, arguments: list[str], **options: Any) -> None:
        inherited = os.environ.get("PYTHONPATH")
        path = os.pathsep.join([str(settings.BASE_DIR), *([inherited] if inherited else [])])
        command = [sys.executable, "-m", MODULE, *(arguments or ["--help"])]
        sys.exit(subprocess.run(command, env={**os.environ, "PYTHONPATH": path}, check=False).returncode)
