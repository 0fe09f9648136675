"""Process identities in certificates: parsing of the name, and the rights that it gives."""

from __future__ import annotations

from typing import Any

import pytest

from brokers.contract.process_identity import ProcessIdentity, ProcessRole, broker, control, identity_in

BROKER = broker("cl-a1b2c3d4", 2)


def certificate(*names: tuple[str, str]) -> dict[str, Any]:
    """Return a certificate in the form that `ssl.SSLSocket.getpeercert` returns."""
    return {"subject": (), "subjectAltName": names}


@pytest.mark.parametrize("process", [BROKER, control("web"), ProcessIdentity(ProcessRole.METRICS, "prometheus")])
def test_the_identity_in_a_certificate_is_read_back(process: ProcessIdentity) -> None:
    assert identity_in(certificate(("URI", process.uri), ("DNS", "localhost"))) == process


@pytest.mark.parametrize(
    "names",
    [
        [],
        [("DNS", "localhost")],
        [("DNS", BROKER.uri)],
        [("URI", "urn:penstock:root:web")],
        [("URI", "urn:penstock:control:")],
        [("URI", "urn:penstock:control")],
        [("URI", "https://penstock.example/")],
        [("URI", BROKER.uri), ("URI", control("web").uri)],
    ],
)
def test_a_certificate_that_names_no_process_or_two_has_no_identity(names: list[tuple[str, str]]) -> None:
    assert identity_in(certificate(*names)) is None
    assert identity_in({}) is None
    assert identity_in(None) is None


def test_a_broker_is_one_of_its_cluster_alone() -> None:
    assert BROKER.is_broker("cl-a1b2c3d4", 2)
    assert not BROKER.is_broker("cl-a1b2c3d4", 1)
    assert not BROKER.is_broker("cl-other000", 2)
    assert (BROKER.is_of("cl-a1b2c3d4"), BROKER.is_of("cl-other000")) == (True, False)


def test_the_control_plane_belongs_to_every_cluster() -> None:
    assert control("web").is_of("cl-a1b2c3d4")
    assert not control("cl-a1b2c3d4:2").is_broker("cl-a1b2c3d4", 2)


def test_files_are_named_after_role_and_name() -> None:
    assert BROKER.file_name == "broker-cl-a1b2c3d4-2.pem"
    assert control("web").file_name == "control-web.pem"
