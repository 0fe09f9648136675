"""The scripts with three brokers: each answer of ours is the one Apache Kafka 3.9.1 gave, or a meant difference."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import pytest

from tests.differential.test_differential import SHOWN_MAX, of_day
from tests.differential.trio.cluster import Trio
from tests.differential.trio.meant_differences import DIFFERENCES, expected
from tests.differential.trio.ours import OurTrio
from tests.differential.trio.record import play, recorded
from tests.differential.trio.scripts.catalogue import SCRIPTS


@pytest.fixture(scope="module")
def trio(zookeeper_address: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Trio]:
    with OurTrio(zookeeper_address, tmp_path_factory.mktemp("trio")) as ours:
        yield ours


@pytest.mark.parametrize("script", of_day(SCRIPTS))
def test_our_brokers_answer_as_apache_kafka_did(script: str, trio: Trio) -> None:
    golden = recorded(script)
    answers = play(script, trio)
    assert list(answers) == list(golden), "the script has changed: record it again"
    wrong = [
        f"{label}\n   expected {json.dumps(wanted)}\n        got {json.dumps(answers[label])}"
        for label, wanted in ((label, expected(script, label, golden[label])) for label in golden)
        if json.loads(json.dumps(answers[label])) != wanted
    ]
    assert not wrong, f"{len(wrong)} of {len(golden)} answers differ:\n" + "\n".join(wrong[:SHOWN_MAX])


@pytest.mark.parametrize("difference", DIFFERENCES, ids=lambda difference: f"{difference.script}: {difference.label}")
def test_every_meant_difference_changes_a_recorded_answer(difference: Any) -> None:
    golden = recorded(difference.script)
    concerned = [label for label in golden if difference.concerns(difference.script, label)]
    assert any(expected(difference.script, label, golden[label]) != golden[label] for label in concerned)
