"""Command `manage.py create_tenant EMAIL NAME`: creates a tenant and its owner on installations without sign-up.

A new owner gets a link to set a password. It is printed once, so that only its reader knows the password.
"""

from __future__ import annotations

from argparse import ArgumentParser
from typing import Any

from allauth.account.adapter import get_adapter
from allauth.account.forms import default_token_generator
from django.core.management.base import BaseCommand, CommandError

from tenants import services
from tenants.actors import system_actor
from tenants.errors import DomainError


class Command(BaseCommand):
    help = "Create a tenant, and its owner's account if there is none with this address."

    def add_arguments(self, parser: ArgumentParser) -> None:
        parser.add_argument("email")
        parser.add_argument("name", help="name of the tenant")

    def handle(self, *args: Any, email: str, name: str, **options: Any) -> None:
        try:
            member, is_new = services.create_tenant_for(email=email, name=name, acting=system_actor("create_tenant"))
        except DomainError as refusal:
            raise CommandError(str(refusal)) from None
        self.stdout.write(f"{member.tenant.name} ({member.tenant_id}) belongs to {member.user.email}")
        if is_new:
            key = f"{member.user_id}-{default_token_generator.make_token(member.user)}"
            link = get_adapter().get_reset_password_from_key_url(key)
            self.stdout.write(f"Send them this link, which sets a password: {link}")
