"""`up` and `down` as Django's `help` shows them. `manage.py` runs both by itself, before Django is imported."""

from __future__ import annotations

import sys
from typing import Any

from django.core.management.base import BaseCommand, CommandError

from config.supervisor.options import parser


class Listed(BaseCommand):
    """One of the two: its line in the list of commands, and its own options rather than Django's."""

    name = ""
    requires_system_checks = ()

    def print_help(self, prog_name: str, subcommand: str) -> None:
        """As `manage.py up --help` prints it."""
        parser().parse_args([self.name, "--help"])

    def handle(self, *args: Any, **options: Any) -> None:
        """Raises `CommandError`: within a process that has Django's settings they would be those of nothing started."""
        raise CommandError(f"Run it as a program of its own: {sys.executable} manage.py {self.name}")
