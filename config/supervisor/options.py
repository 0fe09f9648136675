"""Command line options of `up` and `down`."""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from brokers.contract.ports import ADMIN_PORTS_BELOW, INTERNAL_PORTS_BELOW
from config.environment import state_dir

HTTP_PORT = 8_000
PORT_BASE = 19_000
BROKERS = 3
BROKERS_MAX = 32
# Limits of a fleet on one machine: each host has a loopback address of its own, from 127.0.0.1 on.
CLUSTERS_MAX = 8
HOSTS_MAX = 8
TENANT_PORTS = 10_000  # number of ports of a host, from the first one on
LOWEST_PORT_BASE = 2_100
HIGHEST_PORT_BASE = 60_000


@dataclass(frozen=True, slots=True, kw_only=True)
class UpOptions:
    """Options of `manage.py up`."""

    state_dir: Path
    http_port: int = HTTP_PORT
    brokers: int = BROKERS
    port_base: int = PORT_BASE
    clusters: int = 1
    hosts: int = 1
    demo: bool = True
    # An Apache Kafka is started too, with a cluster of gateways in front of it.
    kafka: bool = False
    detach: bool = False
    ready_file: Path | None = None
    # Set by `--detach`: there is no terminal.
    is_in_background: bool = False

    @property
    def internal_ports(self) -> range:
        """Ports of the brokers' internal listeners: 18001… for the default base."""
        first = self.port_base - INTERNAL_PORTS_BELOW
        return range(first, first + self.brokers)

    @property
    def admin_ports(self) -> range:
        """Ports of the brokers' HTTP endpoints for health and metrics: 18101… for the default base."""
        first = self.port_base - ADMIN_PORTS_BELOW
        return range(first, first + self.brokers)

    @property
    def ports_wanted(self) -> frozenset[int]:
        """Every port that may be used by the console, the brokers or their tenants."""
        tenants = range(self.port_base, self.port_base + TENANT_PORTS)
        return frozenset({self.http_port, *self.internal_ports, *self.admin_ports, *tenants})

    def arguments(self) -> list[str]:
        """Returns an equivalent command line; `--detach` is replaced by the option for no terminal."""
        arguments = ["up", "--state-dir", str(self.state_dir), "--http-port", str(self.http_port)]
        arguments += ["--brokers", str(self.brokers), "--port-base", str(self.port_base)]
        for name, count in (("--clusters", self.clusters), ("--hosts", self.hosts)):
            arguments += [name, str(count)] if count > 1 else []
        if not self.demo:
            arguments.append("--no-demo")
        if self.kafka:
            arguments.append("--kafka")
        if self.ready_file is not None:
            arguments += ["--ready-file", str(self.ready_file)]
        if self.detach:
            arguments.append("--in-background")
        return arguments


@dataclass(frozen=True, slots=True, kw_only=True)
class DownOptions:
    """Options of `manage.py down`."""

    state_dir: Path


HELP = {
    "up": "Start the whole product and stay until Ctrl-C.",
    "down": "Stop what `up` started, and wait for it.",
}


def parser() -> argparse.ArgumentParser:
    """Returns the parser of both commands."""
    parser = argparse.ArgumentParser(prog="manage.py", description="Start and stop the whole of Penstock.")
    commands = parser.add_subparsers(dest="command", required=True)
    up, down = (commands.add_parser(name, help=text, description=text) for name, text in HELP.items())
    for command in (up, down):
        command.add_argument(
            "--state-dir", type=Path, default=state_dir(), help="where data, secrets and logs live (default: var/)"
        )
    up.add_argument("--http-port", type=_port, default=HTTP_PORT, help="console and REST API (default: %(default)s)")
    up.add_argument("--brokers", type=_broker_count, default=BROKERS, help="broker processes (default: %(default)s)")
    up.add_argument(
        "--clusters", type=_cluster_count, default=1,
        help="clusters of --brokers brokers each, spread over the hosts (default: %(default)s)",
    )  # fmt: skip
    up.add_argument(
        "--hosts", type=_host_count, default=1,
        help="hosts, each with an agent and a loopback address: 127.0.0.1, 127.0.0.2 … (default: %(default)s)",
    )  # fmt: skip
    up.add_argument("--port-base", type=_port_base, default=PORT_BASE, help="first tenant port (default: %(default)s)")
    up.add_argument("--no-demo", action="store_true", help="no demo tenant and instance")
    up.add_argument(
        "--kafka", action="store_true",
        help="start an Apache Kafka too, and have the demo instance there behind a gateway; PENSTOCK_APACHE_KAFKA_JARS"
        " names the folder with Kafka's jars",
    )  # fmt: skip
    up.add_argument("--detach", action="store_true", help="return when ready, keep running in the background")
    up.add_argument("--ready-file", type=Path, help="write the ready block there as JSON")
    up.add_argument("--in-background", action="store_true", help=argparse.SUPPRESS)
    return parser


def parse(arguments: Sequence[str]) -> UpOptions | DownOptions:
    """Parses the command line; argparse prints and exits on an error."""
    parsed = parser().parse_args(arguments)
    directory = parsed.state_dir.expanduser().resolve()
    if parsed.command == "down":
        return DownOptions(state_dir=directory)
    return UpOptions(
        state_dir=directory,
        http_port=parsed.http_port,
        brokers=parsed.brokers,
        clusters=parsed.clusters,
        hosts=parsed.hosts,
        port_base=parsed.port_base,
        demo=not parsed.no_demo,
        kafka=parsed.kafka,
        detach=parsed.detach,
        ready_file=parsed.ready_file.expanduser().resolve() if parsed.ready_file else None,
        is_in_background=parsed.in_background,
    )


def _port(text: str) -> int:
    return _between(text, 1, 65_535, "a port")


def _port_base(text: str) -> int:
    return _between(text, LOWEST_PORT_BASE, HIGHEST_PORT_BASE, "the first tenant port")


def _broker_count(text: str) -> int:
    return _between(text, 1, BROKERS_MAX, "the number of brokers")


def _cluster_count(text: str) -> int:
    return _between(text, 1, CLUSTERS_MAX, "the number of clusters")


def _host_count(text: str) -> int:
    return _between(text, 1, HOSTS_MAX, "the number of hosts")


def _between(text: str, low: int, high: int, description: str) -> int:
    try:
        number = int(text)
    except ValueError:
        number = low - 1
    if not low <= number <= high:
        raise argparse.ArgumentTypeError(f"{description} is a number from {low} to {high}, not {text!r}")
    return number
