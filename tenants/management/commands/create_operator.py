"""Command `manage.py create_operator EMAIL`: creates a person who may open the operator panel.

The password comes from the environment variable PENSTOCK_OPERATOR_PASSWORD or a prompt, not from the command line,
where other users of the machine could read it.
"""

from __future__ import annotations

import getpass
import os
from argparse import ArgumentParser
from typing import Any

from django.core.management.base import BaseCommand, CommandError

from tenants import services
from tenants.errors import DomainError

PASSWORD_VARIABLE = "PENSTOCK_OPERATOR_PASSWORD"  # noqa: S105
PASSWORD_CHARS_MIN = 10


class Command(BaseCommand):
    help = "Create an operator, or make an existing user one. Safe to run again."

    def add_arguments(self, parser: ArgumentParser) -> None:
        parser.add_argument("email")

    def handle(self, *args: Any, email: str, **options: Any) -> None:
        password = os.environ.get(PASSWORD_VARIABLE) or getpass.getpass("Password: ")
        if len(password) < PASSWORD_CHARS_MIN:
            raise CommandError(f"A password has at least {PASSWORD_CHARS_MIN} characters.")
        try:
            user, created = services.create_operator(email=email, password=password)
        except DomainError as refusal:
            raise CommandError(str(refusal)) from None
        self.stdout.write(f"{user.email} {'created' if created else 'is an operator'}")
