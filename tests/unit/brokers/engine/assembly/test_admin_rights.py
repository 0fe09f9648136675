"""Access to the admin port."""

from __future__ import annotations

import pytest

from brokers.contract.process_identity import ProcessIdentity, ProcessRole, broker, control
from brokers.engine.assembly.admin_server import access_refusal
from brokers.engine.telemetry.admin_http import Request

CLUSTER, SECRET = "cl-a1b2c3d4", "the control secret"
WEB, READER = control("web"), ProcessIdentity(ProcessRole.METRICS, "prometheus")
PATHS = ("/healthz", "/readyz", "/metrics", "/v1/status")


def statuses(process: ProcessIdentity | None, *, secret: str | None, bearer: str | None = None) -> list[int]:
    refused = (access_refusal(Request(path, {}, bearer, process), cluster_id=CLUSTER, secret=secret) for path in PATHS)
    return [200 if reply is None else reply.status for reply in refused]


@pytest.mark.parametrize(
    ("process", "expected"),
    [
        (WEB, [200, 200, 200, 200]),
        (READER, [200, 200, 200, 403]),
        (broker(CLUSTER, 1), [200, 200, 200, 403]),
        (broker("cl-other000", 1), [200, 200, 403, 403]),
        (None, [200, 200, 403, 403]),
    ],
)
def test_a_certificate_opens_what_its_role_is_for(process: ProcessIdentity | None, expected: list[int]) -> None:
    assert statuses(process, secret=None) == expected
    assert statuses(process, secret=None, bearer=SECRET) == expected


def test_the_secret_opens_everything_where_it_is_accepted() -> None:
    assert statuses(None, secret=SECRET, bearer=SECRET) == [200, 200, 200, 200]
    assert statuses(None, secret=SECRET, bearer="another") == [200, 200, 200, 401]
    assert statuses(None, secret=SECRET) == [200, 200, 200, 401]


def test_a_secret_that_is_empty_opens_nothing() -> None:
    assert statuses(None, secret="", bearer="") == [200, 200, 200, 401]
