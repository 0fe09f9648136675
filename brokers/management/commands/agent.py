"""Command that runs the agent of one host, which starts and supervises its broker processes.

`manage.py agent --host NAME` reaches the database; `manage.py agent --join URL --token T` needs none, and from then on
neither does `manage.py agent`, with the same state directory. `manage.py agent --joined` waits until the host has
joined, and never looks for a database.
"""

from __future__ import annotations

import os
import signal
import time
from argparse import ArgumentParser
from pathlib import Path
from typing import Any
from urllib.parse import quote

from django.conf import settings
from django.core.management.base import BaseCommand, CommandError

from brokers.agent.compiling import ModuleCompiler
from brokers.agent.control_plane import ControlPlane
from brokers.agent.loop import Agent, AnotherAgent, standby_engine_command
from brokers.contract.agent_requests import MEMBERSHIP_FILE
from brokers.operations.seed import FIRST_HOST

JOINED_LOOKED_AT_EVERY_S = 1.0


class Command(BaseCommand):
    requires_system_checks = ()  # no pages are served: importing every view would only delay the start
    help = "Start, watch, restart and stop the broker processes wanted on a host."

    def add_arguments(self, parser: ArgumentParser) -> None:
        parser.add_argument("--host", help="Name of the host, as the operator registered it.")
        parser.add_argument("--join", metavar="URL", help="Address of the control plane; then no database is needed.")
        parser.add_argument("--token", default="", help="Join token of the host, for one use.")
        parser.add_argument("--ca-sha256", default="", help="SHA-256 of the installation's internal authority.")
        parser.add_argument(
            "--joined", action="store_true", help="Use no database: wait until the host has joined, if it has not."
        )
        parser.add_argument("--join-only", action="store_true", help="Join and end, for a service manager to start it.")
        parser.add_argument("--state-dir", help="Directory of all state (PENSTOCK_STATE_DIR).")

    def handle(self, *args: Any, host: str | None = None, **options: Any) -> None:
        os.umask(0o077)  # settings, logs and pid files are readable by their owner only
        run_dir = Path(settings.STATE_DIR) / "agent"
        if options.get("joined") and not options.get("join"):
            self._wait_until_joined(run_dir)
        joined = self._joined(run_dir, host, options)
        if options.get("join_only"):
            return
        name, control_plane = joined or (host or FIRST_HOST, None)
        agent = Agent(
            name,
            control_plane=control_plane,
            standby_command_for=standby_engine_command,
            compiling=ModuleCompiler(run_dir / f"{quote(name, safe='')}.native.json"),
        )

        def stop(_signal: int, _frame: object) -> None:
            agent.must_stop = True

        signal.signal(signal.SIGTERM, stop)
        signal.signal(signal.SIGINT, stop)
        try:
            agent.run()
        except AnotherAgent as error:
            raise CommandError(f"{error} Stop that one, or name this machine's own host with --host.") from error

    def _wait_until_joined(self, run_dir: Path) -> None:
        """Waits until another process has joined the host. A unit of a service manager starts the agent like this."""
        if (run_dir / MEMBERSHIP_FILE).exists():
            return
        line = "manage.py agent --join-only --join URL --token T, from the host's page in the panel"
        self.stderr.write(f"This host has not joined yet. Run here, as the same account: {line}.")
        while not (run_dir / MEMBERSHIP_FILE).exists():
            time.sleep(JOINED_LOOKED_AT_EVERY_S)

    def _joined(self, run_dir: Path, host: str | None, options: dict[str, Any]) -> tuple[str, ControlPlane] | None:
        """Returns the name of the host and its control plane, None for an agent with a database."""
        url, token = options.get("join"), options.get("token", "")
        if not url and (token or options.get("ca_sha256") or options.get("join_only")):
            raise CommandError("--token, --ca-sha256 and --join-only go with --join URL.")
        if not url and not (run_dir / MEMBERSHIP_FILE).exists():
            return None
        # An agent with a database starts without these.
        from brokers.agent.joined.control_plane import JoinedControlPlane
        from brokers.agent.joined.membership import JoinedHost, NotJoined, join

        try:
            if url and token:
                sha256 = options.get("ca_sha256", "")
                joined: JoinedHost | None = join(run_dir, url=url, token=token, ca_sha256=sha256, host_name=host or "")
            else:
                joined = JoinedHost.read(run_dir)
            if joined is None:
                raise NotJoined("This host has not joined yet. Name the --token of its page in the panel.")
            if host is not None and host != joined.host_name:
                raise NotJoined(f"This machine joined as host {joined.host_name}. Leave --host out, or name that one.")
            self.stdout.write(f"This machine is host {joined.host_name} of {joined.url}.")
            return joined.host_name, JoinedControlPlane(joined, run_dir)
        except NotJoined as error:
            raise CommandError(str(error)) from error
