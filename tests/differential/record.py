"""Plays the scripts against a real Apache Kafka 3.9.1 and keeps its answers in `tests/golden/differential/`.

    python -m tests.differential.record --bootstrap 127.0.0.1:9092 [--owner 127.0.0.1:9102/user/secret] [script …]
    python -m tests.differential.record --bootstrap 127.0.0.1:9102 --plaintext 127.0.0.1:9092 sasl

The broker must be fresh: one broker in ZooKeeper mode with its defaults but for `SETTINGS`, none of the scripts' topics
in it; for the scripts of `catalogue.AUTHENTICATED`, a listener with SASL that knows `sasl.ALICE`; for the scripts of
`catalogue.APART`, which are the first on theirs, `SETTINGS_APART`. Those of `catalogue.AUTHORISED` need an authorizer
that allows everyone what no ACL is about, and a superuser who logs in with SASL PLAIN (`--owner`), both at addresses of
the same broker.
Read the diff before committing it.
"""

from __future__ import annotations

import argparse
import json
import sys
from pathlib import Path
from typing import Any

from tests.differential.play import Address, Player
from tests.differential.scripts import catalogue, sasl, scram_users

# One broker keeps what coordinators know, and nobody waits long for what only time brings.
SETTINGS = {
    "offsets.topic.replication.factor": "1",
    "transaction.state.log.replication.factor": "1",
    "transaction.state.log.min.isr": "1",
    "group.initial.rebalance.delay.ms": "0",
    "group.min.session.timeout.ms": "1000",
    "transaction.abort.timed.out.transaction.cleanup.interval.ms": "200",
}
# What scripts of `catalogue.APART` need besides; they are the first on their broker.
SETTINGS_APART = {**SETTINGS, "offsets.retention.check.interval.ms": "500", "group.max.size": "2"}
GOLDEN = Path(__file__).parents[1] / "golden" / "differential"


def play(script: str, address: Address) -> dict[str, Any]:
    """All answers of one script."""
    with Player(address) as player:
        scripts = catalogue.SCRIPTS | catalogue.APART | catalogue.AUTHENTICATED | catalogue.AUTHORISED | catalogue.LONG
        scripts[script](player)
        return player.answers


def recorded(script: str) -> dict[str, Any]:
    """Returns the recorded answers of Apache Kafka."""
    answers: dict[str, Any] = json.loads((GOLDEN / f"{script}.json").read_text())
    return answers


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--bootstrap", required=True)
    parser.add_argument("--plaintext", help="where the SCRAM users of the scripts are made")
    parser.add_argument("--owner")
    parser.add_argument("scripts", nargs="*", default=sorted(catalogue.SCRIPTS))
    given = parser.parse_args()
    host, _, port = given.bootstrap.rpartition(":")
    owner = None
    if given.owner:
        at, user, secret = given.owner.split("/")
        owner_host, _, owner_port = at.rpartition(":")
        owner = Address(owner_host, int(owner_port)), (user, secret)
    GOLDEN.mkdir(parents=True, exist_ok=True)
    if given.plaintext:
        inside, _, inside_port = given.plaintext.rpartition(":")
        with Player(Address(inside, int(inside_port))) as player:
            scram_users.make(player, *sasl.CAROL)
    for script in given.scripts:
        answers = play(script, Address(host, int(port), owner=owner))
        lines = ",\n".join(f"{json.dumps(label)}: {json.dumps(answer)}" for label, answer in answers.items())
        (GOLDEN / f"{script}.json").write_text("{\n" + lines + "\n}\n")
        sys.stdout.write(f"{script}: {len(answers)} answers\n")


if __name__ == "__main__":
    main()
