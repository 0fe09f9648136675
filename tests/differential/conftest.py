"""An instance of our own for the scripts: no topic in it that they do not make."""

from __future__ import annotations

import os
from collections.abc import Iterator

import pytest

from tests.differential.play import Address
from tests.support.tenancy import addresses, demo_tenant


@pytest.fixture(scope="session")
def kafka_address(request: pytest.FixtureRequest) -> Iterator[Address]:
    """The first broker of a fresh instance; `PENSTOCK_DIFFERENTIAL=host:port` names a running one instead."""
    given = os.environ.get("PENSTOCK_DIFFERENTIAL")
    if given:
        host, _, port = given.rpartition(":")
        yield Address(host, int(port))
        return
    tenant = demo_tenant(request.getfixturevalue("stack"))
    instance = tenant.instance("differential", bandwidth_mb_s=50)
    host, _, port = addresses(instance)[0].rpartition(":")
    yield Address(host, int(port))
    tenant.call("DELETE", f"/instances/{instance['id']}")
