"""Command `prepare`: creates what programs need before their first start if `manage.py up` does not start them."""

from __future__ import annotations

import os
from argparse import ArgumentParser
from pathlib import Path
from typing import Any

from django.core.management.base import BaseCommand

from billing.services import ensure_default_plans
from config.embedded.process import PRIVATE_UMASK
from config.environment import state_dir
from config.supervisor import schema, services
from config.supervisor.state import StateDirectory


class Command(BaseCommand):
    requires_system_checks = ()
    help = (
        "Make secrets and certificates where they are missing, and bring database and translations up to this "
        "version, for programs that run under a service manager. `up` does the same. Safe to run again."
    )

    def add_arguments(self, parser: ArgumentParser) -> None:
        # Evaluated by manage.py before the settings that depend on it.
        parser.add_argument("--state-dir", type=Path, default=state_dir(), help="where secrets live (default: var/)")

    def handle(self, *args: Any, **options: Any) -> None:
        os.umask(PRIVATE_UMASK)
        state = StateDirectory(state_dir())
        state.prepare()
        services.ensure_secrets(state)
        self.stdout.write(f"Secrets and certificates are in {state.root / 'secrets'}")
        applied = schema.migrate(self.stdout.write)
        ensure_default_plans()
        self.stdout.write(f"Database schema is current ({applied} migrations applied)")
