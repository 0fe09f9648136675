"""Runs a gateway in the foreground: `python -m brokers.engine.upstream --settings FILE`."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path


def main() -> int:
    parser = argparse.ArgumentParser(
        prog="python -m brokers.engine.upstream",
        description=(
            "A gateway that puts instances (addresses, users, access rules, limits) in front of an existing Apache "
            "Kafka. A preview without control plane: instances are those of the settings file. Stops on SIGTERM."
        ),
        epilog="docs/how-to/put-it-before-your-kafka.md explains the settings.",
    )
    parser.add_argument("--settings", required=True, type=Path, metavar="FILE", help="settings (JSON, mode 600)")
    arguments = parser.parse_args()

    # Imported late, so that --help is fast.
    from brokers.engine import lifecycle
    from brokers.engine.errors import EngineError
    from brokers.engine.telemetry import logs
    from brokers.engine.upstream import gateway, settings

    try:
        gateway_settings = settings.read(arguments.settings)
        logs.configure(min(gateway_settings.nodes, default=-1))
        return lifecycle.run(lambda: gateway.run(gateway_settings))
    except EngineError as error:
        print(f"gateway: {error}", file=sys.stderr)  # noqa: T201
        return 2


if __name__ == "__main__":
    sys.exit(main())
