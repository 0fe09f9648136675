"""Runs the broker processes of one host as configured: `manage.py agent --host NAME`."""

from __future__ import annotations

import os
import signal
from argparse import ArgumentParser
from typing import Any
from urllib.parse import quote

from django.conf import settings
from django.core.management.base import BaseCommand, CommandError

from brokers.agent.compiling import Compiling
from brokers.agent.loop import Agent, AnotherAgent, standing_engine_command
from brokers.operations.seed import FIRST_HOST


class Command(BaseCommand):
    requires_system_checks = ()  # no pages are served: importing every view would only delay the start
    help = "Start, watch, restart and stop the broker processes wanted on a host."

    def add_arguments(self, parser: ArgumentParser) -> None:
        parser.add_argument("--host", default=FIRST_HOST, help="Name of the host, as the operator registered it.")

    def handle(self, *args: Any, host: str, **options: Any) -> None:
        os.umask(0o077)  # settings, logs and pid files are readable by their owner only
        agent = Agent(
            host,
            standing_command_for=standing_engine_command,
            compiling=Compiling(settings.STATE_DIR / "agent" / f"{quote(host, safe='')}.native.json"),
        )

        def stop(_signal: int, _frame: object) -> None:
            agent.must_stop = True

        signal.signal(signal.SIGTERM, stop)
        signal.signal(signal.SIGINT, stop)
        try:
            agent.run()
        except AnotherAgent as error:
            raise CommandError(f"{error} Stop that one, or name this machine's own host with --host.") from error
