"""The scripts against our broker: every answer is the one that Apache Kafka 3.9.1 gave, or a meant difference."""

from __future__ import annotations

import json
import os
from collections.abc import Iterable
from typing import Any

import pytest

from tests.differential.meant_differences import DIFFERENCES, expected
from tests.differential.play import Address
from tests.differential.record import play, recorded
from tests.differential.scripts.catalogue import APART, AUTHENTICATED, AUTHORISED, LONG, SCRIPTS
from tests.testkit import depth, rotation

SHOWN_MAX = 40
# What answers them: a change of it brings all scripts; otherwise `make test` plays a half of them each day.
ANSWERED_BY = ("brokers/engine", "tests/differential")


def of_day(scripts: Iterable[str]) -> list[str]:
    """Those that are played today (decision 85): all of them when they are named on a command line."""
    return depth.day_share(sorted(scripts), 2 if rotation.is_on() else 1, covers=ANSWERED_BY)


@pytest.mark.parametrize("script", of_day((*SCRIPTS, *AUTHORISED)))
def test_our_broker_answers_as_apache_kafka_did(script: str, kafka_address: Address) -> None:
    _compare(script, kafka_address)


def test_a_broker_of_its_own_answers_as_apache_kafka_did(kafka_address_apart: Address) -> None:
    for script in APART:
        _compare(script, kafka_address_apart)


@pytest.mark.parametrize("script", sorted(AUTHENTICATED))
def test_a_route_that_asks_who_is_there_answers_as_apache_kafka_did(
    script: str, kafka_address_authenticated: Address
) -> None:
    _compare(script, kafka_address_authenticated)


@pytest.mark.skipif(
    not os.environ.get("PENSTOCK_DIFFERENTIAL_LONG"), reason="a minute each: PENSTOCK_DIFFERENTIAL_LONG=1 runs them"
)
@pytest.mark.parametrize("script", sorted(LONG))
def test_our_broker_answers_after_a_long_time_as_apache_kafka_did(script: str, kafka_address: Address) -> None:
    _compare(script, kafka_address)


def _compare(script: str, at: Address) -> None:
    golden = recorded(script)
    answers = play(script, at)
    assert list(answers) == list(golden), "the script has changed: record it again"
    wrong = [
        f"{label}\n   expected {json.dumps(wanted)}\n        got {json.dumps(answers[label])}"
        for label, wanted in ((label, expected(script, label, golden[label])) for label in golden)
        if json.loads(json.dumps(answers[label])) != wanted
    ]
    assert not wrong, f"{len(wrong)} of {len(golden)} answers of {script} differ:\n" + "\n".join(wrong[:SHOWN_MAX])


@pytest.mark.parametrize("script", sorted((*SCRIPTS, *APART, *AUTHENTICATED, *AUTHORISED, *LONG)))
def test_every_script_is_recorded(script: str) -> None:
    assert recorded(script)


@pytest.mark.parametrize("difference", DIFFERENCES, ids=lambda difference: f"{difference.script}: {difference.label}")
def test_every_meant_difference_changes_a_recorded_answer(difference: Any) -> None:
    golden = recorded(difference.script)
    concerned = [label for label in golden if difference.concerns(difference.script, label)]
    assert any(expected(difference.script, label, golden[label]) != golden[label] for label in concerned)
