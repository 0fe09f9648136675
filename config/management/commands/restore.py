"""Command `restore`: brings a stopped product to the state of a backup."""

from __future__ import annotations

import os
from argparse import ArgumentParser
from pathlib import Path
from typing import Any

from django.core.management.base import BaseCommand, CommandError
from django.db.migrations.loader import MigrationLoader

from config.backup.restoring import RestoreOrder, restore
from config.embedded.process import PRIVATE_UMASK, StartFailed
from config.environment import state_dir
from config.supervisor.signals import StopRequested, ignore_stop_signals, raise_on_stop_signals


class Command(BaseCommand):
    requires_system_checks = ()
    help = (
        "Restore a backup that `manage.py backup` made into a state directory and its services, or into those that "
        "DATABASE_URL and ZOOKEEPER_URL point at. Stop the product before. Logs of brokers are left as they are."
    )

    def add_arguments(self, parser: ArgumentParser) -> None:
        parser.add_argument("directory", type=Path, metavar="DIR", help="the backup")
        # Evaluated by manage.py before the settings that depend on it.
        parser.add_argument(
            "--state-dir", type=Path, default=state_dir(), help="target state directory (default: var/)"
        )
        parser.add_argument("--replace", action="store_true", help="replace existing data, except for brokers' logs")
        parser.add_argument("--sha256", help="refuse a backup whose manifest has another SHA-256")

    def handle(self, *args: Any, directory: Path, replace: bool, sha256: str | None, **options: Any) -> None:
        os.umask(PRIVATE_UMASK)
        raise_on_stop_signals()
        migrations = MigrationLoader(None).disk_migrations
        order = RestoreOrder(
            backup=directory.expanduser().resolve(),
            state_dir=state_dir(),
            replace=replace,
            sha256=sha256,
            known_migrations=migrations,
            before_undo=ignore_stop_signals,
        )
        try:
            manifest = restore(order, self.stdout.write)
        except StartFailed as refusal:
            raise CommandError(f"{refusal.detail}\nNext step: {refusal.next_step}") from None
        except StopRequested as request:
            raise CommandError(f"Interrupted ({request}): the state of before was put back.") from None
        self.stdout.write(f"\nRestored to {manifest.made_at}. Logs of topics that were made later are deleted by their")
        self.stdout.write("brokers at the start: move the log directories away before, if you need them.")
        if manifest.outside:
            self.stdout.write(f"Not in the backup, bring them yourself: {', '.join(manifest.outside)}")
        self.stdout.write(f"Next step: manage.py up --state-dir {order.state_dir}, or start your own units.")
