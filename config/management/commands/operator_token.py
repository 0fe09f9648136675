"""Command that prints an API token with the scope of operators, for scripts.

For the operator created by `manage.py up` it is the token of the ready block, stored in the state directory. For any
other operator a new token is created, shown once, and not stored.
"""

from __future__ import annotations

from argparse import ArgumentParser
from pathlib import Path
from typing import Any

from django.core.management.base import BaseCommand, CommandError

from config.environment import state_dir
from config.supervisor.seed import OPERATOR_EMAIL, operator_token
from config.supervisor.state import StateDirectory
from tenants.errors import DomainError
from tenants.operator_token import ensure_operator_token


class Command(BaseCommand):
    help = "Print an API token of an operator, and create it if there is none. A token that it replaces is revoked."

    def add_arguments(self, parser: ArgumentParser) -> None:
        parser.add_argument("--email", default=OPERATOR_EMAIL, help="the operator (default: %(default)s)")
        # Evaluated by manage.py before the settings that depend on it.
        parser.add_argument(
            "--state-dir", type=Path, default=state_dir(), help="state directory of the running product"
        )

    def handle(self, *args: Any, email: str, **options: Any) -> None:
        try:
            if email == OPERATOR_EMAIL:
                secret = operator_token(StateDirectory(state_dir()))
            else:
                secret = ensure_operator_token(email=email, stored_secret=None)
        except DomainError as refusal:
            raise CommandError(str(refusal)) from None
        self.stdout.write(secret)
