"""Entries of `up` and `down` in Django's `help`. `manage.py` runs both before Django is imported."""

from __future__ import annotations

import sys
from typing import Any

from django.core.management.base import BaseCommand, CommandError

from config.supervisor.options import parser


class ListedCommand(BaseCommand):
    """Base of both commands: lists them in Django's `help`, and prints their own options instead of Django's."""

    name = ""
    requires_system_checks = ()

    def print_help(self, prog_name: str, subcommand: str) -> None:
        """Prints the help of `manage.py up --help`."""
        parser().parse_args([self.name, "--help"])

    def handle(self, *args: Any, **options: Any) -> None:
        """Raises `CommandError`: the settings of this process do not belong to a started product."""
        raise CommandError(f"Run it as a program of its own: {sys.executable} manage.py {self.name}")
