"""The address that stock clients are given."""

from __future__ import annotations

import pytest

from tests.support.stack import Stack


@pytest.fixture(scope="session")
def demo_bootstrap(stack: Stack) -> str:
    """Bootstrap servers of the demo instance."""
    servers = stack.ready["instance"]["bootstrap_servers"]
    assert isinstance(servers, str)
    return servers
