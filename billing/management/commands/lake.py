"""Command `manage.py lake`: merges files, deletes strays, and compares the lake with the tables."""

from __future__ import annotations

from argparse import ArgumentParser
from datetime import UTC, date, timedelta
from typing import Any

from django.conf import settings
from django.core.management.base import BaseCommand, CommandError
from django.utils import timezone

from billing import dsn
from billing.lake import merge_schedule, reconciliation, strays
from billing.lake.address import open_lake
from billing.lake.replay import LakeBroken

DIFFERENCES_SHOWN = 20


class Command(BaseCommand):
    help = "Looks after the lake: the Parquet files that bills can be worked out again from."

    def add_arguments(self, parser: ArgumentParser) -> None:
        subcommands = parser.add_subparsers(dest="act", required=True, metavar="ACT")
        subcommands.add_parser("merge", help="merge the files of each day that is over")
        subcommands.add_parser("sweep", help="delete files that no row names, of runs and merges that were killed")
        reconcile = subcommands.add_parser(
            "reconcile", help="work a day out again; ends with 1 where the tables differ"
        )
        reconcile.add_argument("--day", metavar="YYYY-MM-DD", help="in UTC; default: yesterday")

    def handle(self, *_: Any, **options: Any) -> None:
        today = timezone.now().astimezone(UTC).date()
        try:
            lake = open_lake(settings.LAKE_URL)
            if options["act"] == "merge":
                self.stdout.write(f"{merge_schedule.merge_days(lake, today)} files fewer")
                return
            if options["act"] == "sweep":
                result = strays.sweep(lake, dsn.conninfo(), timezone.now())
                rest = "" if result.is_complete else "; there may be more: run it again"
                self.stdout.write(f"{result.files} files deleted, {result.bytes} bytes{rest}")
                return
            day = _day(options["day"]) if options["day"] else today - timedelta(days=1)
            differences = reconciliation.reconcile(lake, day)
        except (LakeBroken, ValueError, OSError) as error:
            raise CommandError(str(error)) from None
        for hour in differences[:DIFFERENCES_SHOWN]:
            self.stdout.write(
                f"{hour.instance_id} {hour.hour:%Y-%m-%d %H:%M} {hour.direction}: "
                f"{hour.in_tables} bytes in the tables, {hour.in_lake} in the lake"
            )
        if differences:
            raise CommandError(f"{len(differences)} hours differ")
        self.stdout.write(f"{day}: tables and lake say the same")


def _day(text: str) -> date:
    try:
        return date.fromisoformat(text)
    except ValueError:
        raise CommandError("A day is written 2026-11-20.") from None
