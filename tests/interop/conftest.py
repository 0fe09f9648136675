"""The addresses that stock clients are given."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.testkit.engine import EngineCluster
from tests.testkit.stack import Stack

# Groups form at once, and notice soon who has gone.
COORDINATING = {"group.initial.rebalance.delay.ms": "0", "group.min.session.timeout.ms": "1000"}


@pytest.fixture(scope="session")
def demo_bootstrap(stack: Stack) -> str:
    """Bootstrap servers of the demo instance, for clients that do not sign in."""
    return stack.open_bootstrap()


@pytest.fixture(scope="session")
def coordinating_bootstrap(zookeeper_address: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """Bootstrap servers of an instance on three brokers, for groups and transactions."""
    home = tmp_path_factory.mktemp("coordinating")
    with EngineCluster(zookeeper_address, home, size=3, overrides=COORDINATING) as cluster:
        yield cluster.create_instance("ins-interop0").bootstrap
