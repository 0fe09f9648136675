"""Command `units`: systemd units, a Compose file or Kubernetes manifests for the product's programs."""

from __future__ import annotations

from argparse import ArgumentParser, ArgumentTypeError
from pathlib import Path, PurePosixPath
from typing import Any

from django.core.management.base import BaseCommand, CommandError

from config.deployment import compose, kubernetes, systemd
from config.deployment.layout import USER, DeploymentOrder
from config.deployment.roles import AGENT, AGENT_WITH_DATABASE, DEFAULT_ROLES, ROLES, ProgramRole
from config.environment import BASE_DIR

FORMATS = {"systemd": systemd.files, "compose": compose.files, "kubernetes": kubernetes.files}
# Characters that a path in a unit must not contain, because it is not quoted.
FORBIDDEN_IN_PATHS = frozenset(" \t\n\"'\\%$:")


class Command(BaseCommand):
    requires_system_checks = ()
    help = (
        "Print what starts the product's programs under a service manager of yours. PostgreSQL, Redis and ZooKeeper "
        "are not among them. Secrets are named, never written."
    )

    def add_arguments(self, parser: ArgumentParser) -> None:
        parser.add_argument("--format", choices=FORMATS, required=True)
        parser.add_argument(
            "--roles",
            type=_roles,
            default=list(DEFAULT_ROLES),
            help=f"some of {','.join(ROLES)}, separated by commas; agent is for hosts that join by a token",
        )
        parser.add_argument("--output", type=Path, metavar="DIR", help="write files there instead of printing them")
        parser.add_argument(
            "--code", type=_path, default=str(BASE_DIR), help="where the code is (default: %(default)s)"
        )
        parser.add_argument("--user", default=USER, help="account of systemd units (default: %(default)s)")
        parser.add_argument(
            "--data-dir", type=_path, action="append", default=[], help="a directory of the agent's brokers; repeatable"
        )

    def handle(self, *args: Any, output: Path | None, **options: Any) -> None:
        if not options["user"].isidentifier():
            raise CommandError("--user: the name of an account has letters, digits and underscores.")
        order = DeploymentOrder(
            roles=options["roles"], code=options["code"], user=options["user"], data_dirs=options["data_dir"]
        )
        files = FORMATS[options["format"]](order)
        if output is None:
            for name, text in files.items():
                self.stdout.write(f"# --- {name}\n{text}")
            return
        try:
            output.mkdir(parents=True, exist_ok=True)
            for name, text in files.items():
                (output / name).write_text(text, encoding="utf-8")
                self.stdout.write(str(output / name))
        except OSError as error:
            raise CommandError(f"{output} cannot be written: {error.strerror or error}.") from error


def _roles(text: str) -> list[ProgramRole]:
    names = dict.fromkeys(text.split(","))
    unknown = [name for name in names if name not in ROLES]
    if unknown:
        raise ArgumentTypeError(f"{unknown[0]!r} is no role; there are {', '.join(ROLES)}")
    if AGENT.name in names and AGENT_WITH_DATABASE.name in names:
        raise ArgumentTypeError(f"a machine has one agent: {AGENT.name} or {AGENT_WITH_DATABASE.name}")
    return [ROLES[name] for name in names]


def _path(text: str) -> str:
    path = PurePosixPath(text)
    if not path.is_absolute() or ".." in path.parts or FORBIDDEN_IN_PATHS.intersection(text):
        raise ArgumentTypeError(f"{text!r} is no absolute path without spaces and special signs")
    return str(path)
