"""Plays the scripts against three brokers of Apache Kafka 3.9.1 and keeps their answers in
`tests/golden/differential/trio/`.

    python -m tests.differential.trio.record --state DIR/state.json [script …]

The brokers must be fresh, in ZooKeeper mode, and have `SETTINGS`; `state.json` names their addresses and processes, as
`{"bootstrap": "host:port,host:port,host:port", "broker_pids": [1, 2, 3]}`. Read the diff before committing it.
"""

from __future__ import annotations

import argparse
import json
import sys
from pathlib import Path
from typing import Any

from tests.differential.trio.cluster import ApacheTrio, Trio
from tests.differential.trio.play import TrioPlayer
from tests.differential.trio.scripts import catalogue

GOLDEN = Path(__file__).parents[2] / "golden" / "differential" / "trio"
SETTINGS = {
    "default.replication.factor": "1",
    "replica.lag.time.max.ms": "4000",
    "auto.leader.rebalance.enable": "false",
    "controlled.shutdown.retry.backoff.ms": "500",
}


def play(script: str, trio: Trio) -> dict[str, Any]:
    """All answers of one script."""
    with TrioPlayer(trio) as player:
        catalogue.SCRIPTS[script](player)
        return player.answers


def recorded(script: str) -> dict[str, Any]:
    """Returns the recorded answers of Apache Kafka."""
    answers: dict[str, Any] = json.loads((GOLDEN / f"{script}.json").read_text())
    return answers


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--state", type=Path, required=True)
    parser.add_argument("scripts", nargs="*", default=sorted(catalogue.SCRIPTS))
    given = parser.parse_args()
    GOLDEN.mkdir(parents=True, exist_ok=True)
    for script in given.scripts:
        answers = play(script, ApacheTrio(given.state))
        lines = ",\n".join(f"{json.dumps(label)}: {json.dumps(answer)}" for label, answer in answers.items())
        (GOLDEN / f"{script}.json").write_text("{\n" + lines + "\n}\n")
        sys.stdout.write(f"{script}: {len(answers)} answers\n")


if __name__ == "__main__":
    main()
