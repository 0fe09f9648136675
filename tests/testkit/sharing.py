"""Distribution of tests over the workers of `make test`: tests that share an expensive fixture stay on one worker. Also
the environment of a test that is tried a second time (decision 78).
"""

from __future__ import annotations

import os
import socket
from pathlib import PurePosixPath

import pytest
from xdist.remote import Producer
from xdist.scheduler.loadscope import LoadScopeScheduling

PRODUCT = "product"
SPARK = "spark"
# Units in the order in which they start. The longest starts first, so that it does not run alone at the end.
ORDER = (PRODUCT, SPARK)
# Modules of the product that run last, in this order: the first moves instances to other ports, which other tests have
# noted; the second needs Spark, which has started by then.
AFTER_OTHERS = ("test_operators", "test_usage")
PRODUCT_ROOMS = frozenset({"system", "quiet"})
# Folders whose modules take tens of seconds each; they start next.
LONG_ROOMS = (
    "differential",
    "product/browser",
    "adversarial",
    "component/engine",
    "interop",
    "simulation",
    "component/brokers",
)
# Modules elsewhere that use the product, and modules of tests/product/system that start a product of their own.
WITH_THE_PRODUCT = ("browser/test_first_message", "browser/test_journey", "interop/test_clients")
WITHOUT_THE_PRODUCT = ("system/test_stop", "system/test_restore")
# Long modules without shared fixtures: each of their tests is a unit of its own.
APART = (
    "test_cluster_seeds",
    "test_coordinator_seeds",
    "test_crash_matrix",
    "test_planted_bugs",
    "test_planted_bugs_of_coordinators",
)


def unit_of(node_id: str) -> str:
    """Returns the name of the unit that stays on one worker, for `node_id`, `tests/…/test_x.py::test_y[…]`. It depends
    on the path alone, because the scheduler has not imported the tests.
    """
    path = PurePosixPath(node_id.partition("::")[0]).with_suffix("")
    rooms, module = path.parts[:-1], "/".join(path.parts[-2:])
    if module in WITH_THE_PRODUCT or (not PRODUCT_ROOMS.isdisjoint(rooms) and module not in WITHOUT_THE_PRODUCT):
        return PRODUCT
    if "pipeline" in rooms:
        return SPARK
    return node_id if path.stem in APART else str(path)


def sort_key_of(node_id: str) -> tuple[int, int]:
    """Returns the sort key of a test: its unit among the units, and its place in the unit."""
    unit = unit_of(node_id)
    if unit in ORDER:
        module = PurePosixPath(node_id.partition("::")[0]).stem
        return ORDER.index(unit), AFTER_OTHERS.index(module) + 1 if module in AFTER_OTHERS else 0
    rooms = (place for place, room in enumerate(LONG_ROOMS) if unit.startswith(f"tests/{room}/"))
    return len(ORDER) + next(rooms, len(LONG_ROOMS)), 0


class UnitScheduling(LoadScopeScheduling):
    """Scheduling by unit instead of module. `--dist loadgroup` does not fit: it marks tests where pytest
    does not look.
    """

    def _split_scope(self, nodeid: str) -> str:
        return unit_of(nodeid)


@pytest.hookimpl(trylast=True)
def pytest_configure(config: pytest.Config) -> None:
    """Has workers report each attempt to the first process, in two small messages: a second one would wait 40 ms for
    the acknowledgement of the first.
    """
    connection = getattr(getattr(config, "failures_db", None), "sock", None)
    if connection is not None:
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Producer) -> UnitScheduling:
    """Applies to every `--dist`: no other distribution keeps the product on one worker."""
    return UnitScheduling(config, log)


@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Sorts the tests by the order of the units."""
    if config.getoption("max_suite_reruns") is not None:
        for item in items:
            item.add_marker(pytest.mark.flaky(reruns=1))
    if "PYTEST_XDIST_WORKER" in os.environ:
        items.sort(key=lambda item: sort_key_of(item.nodeid))


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_setup(item: pytest.Item) -> None:
    """Fails a test with which this worker would start a second product."""
    if getattr(item, "execution_count", 1) > 1:
        _begin_anew(item)
    if "stack" in getattr(item, "fixturenames", ()) and unit_of(item.nodeid) != PRODUCT:
        pytest.fail(f"{item.path.name} uses the product: name it in WITH_THE_PRODUCT of tests/testkit/sharing.py")


def _begin_anew(item: pytest.Item) -> None:
    """Gives a second attempt its own brokers: the module's know the topics of the first one. Session fixtures stay."""
    if isinstance(item, pytest.Function):
        for definitions in item._fixtureinfo.name2fixturedefs.values():
            for definition in definitions:
                if definition.scope in ("class", "module", "package"):
                    definition.finish(item._request)


def worker() -> tuple[int, int]:
    """Returns the number of this process among the workers, from 0, and their count."""
    number = os.environ.get("PYTEST_XDIST_WORKER", "gw0").removeprefix("gw")
    return int(number), int(os.environ.get("PYTEST_XDIST_WORKER_COUNT", "1"))


def worker_share(candidates: range) -> range:
    """Returns the part of `candidates` that belongs to this worker alone, so that two do not race for the same ones."""
    number, count = worker()
    size = len(candidates) // count
    return candidates[number * size : (number + 1) * size]
