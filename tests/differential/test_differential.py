"""The scripts against our broker: every answer is the one that Apache Kafka 3.9.1 gave, or a meant difference."""

from __future__ import annotations

import json
from typing import Any

import pytest

from tests.differential.meant_differences import DIFFERENCES, expected
from tests.differential.play import Address
from tests.differential.record import play, recorded
from tests.differential.scripts.catalogue import SCRIPTS

SHOWN_MAX = 40


@pytest.mark.parametrize("script", sorted(SCRIPTS))
def test_our_broker_answers_as_apache_kafka_did(script: str, kafka_address: Address) -> None:
    golden = recorded(script)
    answers = play(script, kafka_address)
    assert list(answers) == list(golden), "the script has changed: record it again"
    wrong = [
        f"{label}\n   expected {json.dumps(wanted)}\n        got {json.dumps(answers[label])}"
        for label, wanted in ((label, expected(script, label, golden[label])) for label in golden)
        if json.loads(json.dumps(answers[label])) != wanted
    ]
    assert not wrong, f"{len(wrong)} of {len(golden)} answers differ:\n" + "\n".join(wrong[:SHOWN_MAX])


@pytest.mark.parametrize("script", sorted(SCRIPTS))
def test_every_script_is_recorded(script: str) -> None:
    assert recorded(script)


@pytest.mark.parametrize("difference", DIFFERENCES, ids=lambda difference: f"{difference.script}: {difference.label}")
def test_every_meant_difference_changes_a_recorded_answer(difference: Any) -> None:
    golden = recorded(difference.script)
    concerned = [label for label in golden if difference.concerns(difference.script, label)]
    assert any(expected(difference.script, label, golden[label]) != golden[label] for label in concerned)
