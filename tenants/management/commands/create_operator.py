"""Command `manage.py create_operator EMAIL`: creates a person who may open the operator panel.

An existing person becomes an operator and keeps the password; none is asked for. A new one's password comes from the
environment variable PENSTOCK_OPERATOR_PASSWORD or a prompt, not from the command line, where other users of the machine
could read it.
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


class Command(BaseCommand):
    help = (
        "Create an operator, whose password is asked for or taken from PENSTOCK_OPERATOR_PASSWORD. An existing user "
        "becomes an operator and keeps the password. Safe to run again."
    )

    def add_arguments(self, parser: ArgumentParser) -> None:
        parser.add_argument("email")

    def handle(self, *args: Any, email: str, **options: Any) -> None:
        appointed = services.appoint_operator(email=email)
        if appointed is not None:
            user, is_new = appointed
            outcome = "is an operator now and keeps the password" if is_new else "is an operator already"
            self.stdout.write(f"{user.email} {outcome}")
            return
        password = os.environ.get(PASSWORD_VARIABLE) or getpass.getpass("Password: ")
        try:
            user, _created = services.create_operator(email=email, password=password)
        except DomainError as refusal:
            raise CommandError(str(refusal)) from None
        self.stdout.write(f"{user.email} created")
