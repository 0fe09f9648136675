"""Runs one broker or gateway process in the foreground: `python -m brokers.engine --settings FILE`."""

from __future__ import annotations

import argparse
import os
import sys
from pathlib import Path

from brokers.native.finder import install as install_compiled_modules


def main() -> int:
    parser = argparse.ArgumentParser(
        prog="python -m brokers.engine", description="A Kafka-protocol broker. Stops cleanly on SIGTERM."
    )
    parser.add_argument("--settings", required=True, type=Path, metavar="FILE", help="settings, written by the agent")
    parser.add_argument("--stand-by", action="store_true", help="start up to the takeover, then wait on standard input")
    arguments = parser.parse_args()

    # Imported late, so that --help is fast, and compiled modules are installed before their sources are imported.
    install_compiled_modules()
    from brokers.engine import config as configuration
    from brokers.engine import lifecycle
    from brokers.engine.errors import EngineError

    os.umask(lifecycle.PRIVATE_UMASK)
    if arguments.stand_by:
        from brokers.engine.assembly import broker

        if not lifecycle.wait_for_takeover():
            return 0
    try:
        config = configuration.read(arguments.settings)
        from brokers.engine.assembly import broker
        from brokers.engine.telemetry import logs

        logs.configure(config.broker_id)
        if config.upstream_file is not None:
            from brokers.engine.upstream import cluster_gateway

            return lifecycle.run(lambda: cluster_gateway.run(config))
        return lifecycle.run(lambda: broker.run(config))
    except EngineError as error:
        print(f"broker: {error}", file=sys.stderr)  # noqa: T201
        return 2


if __name__ == "__main__":
    sys.exit(main())
