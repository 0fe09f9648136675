"""A produce and a fetch pass the functions that docs/explanation/ARCHITECTURE.md lists, in that order and each once."""

from __future__ import annotations

import re
import sys
from pathlib import Path
from types import FrameType
from typing import Any, Final

import pytest

from brokers.engine.protocol.apis import ApiKey
from brokers.native import finder
from tests.testkit.records import FETCH_VERSION, PRODUCE_VERSION, batch, fetch_request, produce_request
from tests.unit.brokers.engine.handlers.conftest import House

PAGE: Final = Path(__file__).resolve().parents[5] / "docs/explanation/ARCHITECTURE.md"
ENGINE: Final = "brokers.engine."
MODULES_MAX: Final = 18
# Modules whose functions are stages of a request; others hold values, codecs and counters.
STAGES: Final = ("handlers.produce.", "handlers.fetch.", "storage.log", "storage.segment")
# Values and decisions that stages use.
ASKED: Final = {"handlers.produce.recompression"}


def listed(beginning: str) -> list[str]:
    """Returns the functions of the list that follows this sentence."""
    text = PAGE.read_text()
    steps = text[text.index(beginning) :].split("\n\n", 2)[1]
    return [name for name in re.findall(r"`([\w.]+)`", steps) if name.count(".") >= 2]


async def trace(house: House, api_key: int, version: int, request: Any) -> list[str]:
    """Returns the functions of the engine that the second one of two equal requests enters."""
    await house.mine.call(api_key, version, request)
    entered: list[str] = []

    def enter(frame: FrameType, event: str, _: object) -> None:
        module = frame.f_globals.get("__name__", "")
        if event == "call" and module.startswith(ENGINE):
            entered.append(f"{module.removeprefix(ENGINE)}.{frame.f_code.co_qualname}")

    sys.setprofile(enter)
    try:
        await house.mine.call(api_key, version, request)
    finally:
        sys.setprofile(None)
    return entered


def module_of(function: str) -> str:
    return re.sub(r"(\.[A-Z]\w+)?\.\w+$", "", function.partition(".<locals>")[0])


@pytest.mark.skipif(finder.is_installed(), reason="compiled functions are not seen by a profiler")
@pytest.mark.parametrize(
    ("beginning", "api_key", "version"),
    [
        ("The functions that such a produce passes", ApiKey.PRODUCE, PRODUCE_VERSION),
        ("The functions that a fetch of cached records passes", ApiKey.FETCH, FETCH_VERSION),
    ],
    ids=["produce", "fetch"],
)
async def test_a_request_passes_the_listed_functions_in_order_and_once(
    house: House, beginning: str, api_key: int, version: int
) -> None:
    await house.topic()
    await house.mine.call(ApiKey.PRODUCE, PRODUCE_VERSION, produce_request("orders", batch(b"v"), acks=-1))
    is_produce = api_key == ApiKey.PRODUCE
    request = produce_request("orders", batch(b"v"), acks=-1) if is_produce else fetch_request("orders")

    entered = await trace(house, api_key, version, request)

    functions = listed(beginning)
    modules = {module_of(function) for function in functions}
    assert len(modules) <= MODULES_MAX
    assert [function for function in entered if function in functions] == functions
    stages = {module_of(function) for function in entered if function.startswith(STAGES)}
    assert stages - ASKED <= modules, "each stage is in the list"
