"""Which tests one worker keeps when `make test` runs several: those that share something that is dear to start."""

from __future__ import annotations

import os

import pytest

PRODUCT = "product"
SPARK = "spark"
# A parameter of tests that may be apart from the others of their module.
CHUNK = "chunk"
# The longest first, so that no worker is left with it when the others are done.
ORDER = (PRODUCT, SPARK)
# Of those of the product the last: by then it has started its Spark for what the others used.
AFTER_OTHERS = "test_usage"


def group_of(item: pytest.Item) -> str:
    """The product and Spark are started by one worker each; any other module stays together, or its chunks."""
    if "stack" in getattr(item, "fixturenames", ()):
        return PRODUCT
    if "pipeline" in item.path.parts:
        return SPARK
    parameters = item.callspec.params if isinstance(item, pytest.Function) and hasattr(item, "callspec") else {}
    if CHUNK in parameters:
        return item.name
    return item.path.stem if item.path.parent.name == "tests" else f"{item.path.parent.name}.{item.path.stem}"


@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Groups for pytest-xdist's `--dist loadgroup`, which keeps the order of collection."""
    places = {name: place for place, name in enumerate(ORDER)}
    for item in items:
        item.add_marker(pytest.mark.xdist_group(group_of(item)))
    if "PYTEST_XDIST_WORKER" in os.environ:
        items.sort(key=lambda item: (places.get(group_of(item), len(places)), item.path.stem == AFTER_OTHERS))


def worker_share(candidates: range) -> range:
    """The stretch of `candidates` that is this worker's alone, so that two workers do not race for the same ones."""
    count = int(os.environ.get("PYTEST_XDIST_WORKER_COUNT", "1"))
    number = int(os.environ.get("PYTEST_XDIST_WORKER", "gw0").removeprefix("gw"))
    size = len(candidates) // count
    return candidates[number * size : (number + 1) * size]
