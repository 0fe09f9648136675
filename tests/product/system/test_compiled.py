"""A product that is started without a build compiles itself, and no client notices."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from confluent_kafka import KafkaError, Message, Producer

from brokers.native import finder, notes
from tests.testkit.stack import Stack, make_stack
from tests.testkit.waiting import eventually

pytestmark = pytest.mark.system
COMPILED_WITHIN_S = 1_500.0


@pytest.fixture()
def product(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Stack]:
    """A product with compiled modules enabled, with its own builds, and none yet."""
    monkeypatch.delenv(finder.SWITCH)
    monkeypatch.setenv("PENSTOCK_NATIVE_DIR", str(tmp_path / "builds"))
    product = make_stack(tmp_path)
    yield product
    if product.process is not None:
        product.stop()


def note_of(product: Stack) -> notes.Note:
    return notes.read(product.state_dir / "agent/local.native.json")


def started_as(product: Stack) -> list[str]:
    """Returns the log lines of brokers about compiled modules, one for each start."""
    lines = [
        line
        for file in product.state_dir.glob("agent/*/*/broker.log")
        for line in file.read_text(encoding="utf-8").splitlines()
        if '"broker_started"' in line
    ]
    return sorted("compiled" if '"compiled": true' in line else "plain" for line in lines)


@pytest.mark.long("brokers/native", "brokers/agent")
def test_without_a_compiler_a_line_says_so_and_brokers_run_plain(
    product: Stack, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("CC", "/no/such/cc")
    product.brokers = 1
    product.start()
    assert "plain modules, which take more CPU: there is no C compiler (/no/such/cc)" in product.output
    assert note_of(product).build is notes.Build.IMPOSSIBLE
    assert started_as(product) == ["plain"]


@pytest.mark.long
@pytest.mark.timeout(2_400)
def test_brokers_are_compiled_behind_the_start_and_no_produce_fails(product: Stack) -> None:
    product.start()
    assert "Brokers run plain modules; they are compiled behind the start" in product.output
    failures: list[KafkaError] = []
    acknowledged = 0

    def done(error: KafkaError | None, _message: Message) -> None:
        nonlocal acknowledged
        if error is None:
            acknowledged += 1
        else:
            failures.append(error)

    producer = Producer({**product.demo_client(), "acks": "all"})

    def is_compiled() -> bool:
        producer.produce("hello", b"x" * 100, on_delivery=done)
        producer.poll(0.02)
        return started_as(product).count("compiled") == product.brokers

    eventually(is_compiled, within_s=COMPILED_WITHIN_S, what="compiled brokers")
    for _ in range(200):
        is_compiled()
    assert producer.flush(60) == 0
    assert failures == [] and acknowledged > 200
    assert started_as(product) == ["compiled"] * product.brokers + ["plain"] * product.brokers
