"""Command `backup`: PostgreSQL, ZooKeeper's documents and secrets, beside a product that runs."""

from __future__ import annotations

import os
from argparse import ArgumentParser
from pathlib import Path
from typing import Any

from django.core.management.base import BaseCommand, CommandError

from config.backup.backing_up import back_up
from config.embedded.process import PRIVATE_UMASK, StartFailed
from config.environment import Environment, state_dir
from config.supervisor.signals import StopRequested, raise_on_stop_signals


class Command(BaseCommand):
    requires_system_checks = ()
    help = (
        "Back up PostgreSQL, ZooKeeper's documents and secrets into a new directory. The product keeps running. "
        "Messages and the lake are not in it. The backup has all secrets: keep it like a key."
    )

    def add_arguments(self, parser: ArgumentParser) -> None:
        parser.add_argument("directory", type=Path, metavar="DIR", help="target directory; empty or missing")
        # Evaluated by manage.py before the settings that depend on it.
        parser.add_argument(
            "--state-dir", type=Path, default=state_dir(), help="state directory of the running product"
        )

    def handle(self, *args: Any, directory: Path, **options: Any) -> None:
        os.umask(PRIVATE_UMASK)
        raise_on_stop_signals()
        target = directory.expanduser().resolve()
        try:
            result = back_up(target, Environment.read(), self.stdout.write)
        except StartFailed as refusal:
            raise CommandError(f"{refusal.detail}\nNext step: {refusal.next_step}") from None
        except StopRequested as request:
            raise CommandError(f"Interrupted ({request}): nothing was left in {target}.") from None
        self.stdout.write(f"\nBacked up to {target}, as of {result.manifest.made_at}.")
        self.stdout.write(f"SHA-256 of its manifest: {result.sha256}")
        if result.manifest.outside:
            self.stdout.write(f"Not in it, keep them yourself: {', '.join(result.manifest.outside)}")
