"""Command `manage.py archives`: runs archives that are due."""

from __future__ import annotations

from argparse import ArgumentParser
from typing import Any

from django.core.management.base import BaseCommand
from django.utils import timezone

from archives import running
from billing import usage_backlog


class Command(BaseCommand):
    help = "Looks after archives: topics of tenants that are copied to Parquet files or databases."

    def add_arguments(self, parser: ArgumentParser) -> None:
        acts = parser.add_subparsers(dest="act", required=True, metavar="ACT")
        acts.add_parser("run", help="run the archives that are due, once; others begin where they are")

    def handle(self, *_: Any, **options: Any) -> None:
        runs = running.run_due(usage_backlog.spark_session, timezone.now())
        self.stdout.write(f"{runs} runs")
