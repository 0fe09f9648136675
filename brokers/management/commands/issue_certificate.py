"""Issues a certificate of the authority of the internal processes: `manage.py issue_certificate metrics NAME`."""

from __future__ import annotations

import os
import re
from argparse import ArgumentParser
from pathlib import Path
from typing import Any

from django.conf import settings
from django.core.management.base import BaseCommand, CommandError

from brokers.contract.process_identity import CONTROL_PROCESSES, ProcessIdentity, ProcessRole
from brokers.infra.certificates import ensure_internal_ca, ensure_process_certificate

_NAME = re.compile(r"[a-z0-9][a-z0-9-]{0,30}")
_BROKER = re.compile(r"[A-Za-z0-9_-]{1,30}:[0-9]{1,9}")


class Command(BaseCommand):
    requires_system_checks = ()
    help = "Create or renew the certificate of a process: a metrics reader, a broker, or a control program."

    def add_arguments(self, parser: ArgumentParser) -> None:
        parser.add_argument("role", choices=[role.value for role in ProcessRole])
        parser.add_argument("name", help="For a broker CLUSTER:NUMBER, such as cl-a1b2c3d4:1; else any name.")
        parser.add_argument(
            "--host", action="append", default=[], help="For a broker: a host name or address that others connect to."
        )

    def handle(self, *args: Any, role: str, name: str, host: list[str], **options: Any) -> None:
        os.umask(0o077)
        process = ProcessIdentity(ProcessRole(role), name)
        _check(process)
        directory = Path(settings.INTERNAL_TLS_DIR)
        try:
            authority = ensure_internal_ca(directory)
            file = ensure_process_certificate(directory, process, host)
        except OSError as error:
            raise CommandError(f"{directory} cannot be written: {error.strerror or error}.") from error
        if file is None:
            raise CommandError(
                f"The authority's key is not in {directory}. Run this where it is, and bring the file it names here."
            )
        self.stdout.write(f"Key and certificate: {file}\nAuthority: {authority}")


def _check(process: ProcessIdentity) -> None:
    if process.role is ProcessRole.BROKER:
        if not _BROKER.fullmatch(process.name):
            raise CommandError("Name a broker as CLUSTER:NUMBER, such as cl-a1b2c3d4:1.")
    elif process.role is ProcessRole.CONTROL:
        if process.name not in CONTROL_PROCESSES:
            raise CommandError(f"A program of the control plane is one of {', '.join(CONTROL_PROCESSES)}.")
    elif not _NAME.fullmatch(process.name):
        raise CommandError("A name has up to 31 of a-z, 0-9 and hyphens, and begins with a letter or digit.")
