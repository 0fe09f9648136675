"""Document of revoked certificates."""

from __future__ import annotations

import pytest

from brokers.contract.process_identity import ProcessIdentity, broker, control
from brokers.contract.revoked_certificates import ISSUED_BEFORE_S, RevokedCertificates, issued_at_s

# One hour before 2026-11-30 12:00:00 UTC.
CERTIFICATE = {"notBefore": "Nov 30 11:00:00 2026 GMT"}
ISSUED_S = 1_796_040_000


def test_a_certificate_is_issued_an_hour_after_its_beginning() -> None:
    assert ISSUED_BEFORE_S == 3_600
    assert issued_at_s(CERTIFICATE) == ISSUED_S


@pytest.mark.parametrize(
    ("process", "from_s", "is_included"),
    [
        (broker("cl-a", 1), ISSUED_S + 1, True),
        (broker("cl-a", 1), ISSUED_S, False),
        (broker("cl-a", 2), ISSUED_S + 1, False),
        (broker("cl-b", 1), ISSUED_S + 1, False),
        (control("web"), ISSUED_S + 1, False),
        (None, ISSUED_S + 1, False),
    ],
)
def test_earlier_certificates_of_the_broker_are_included_alone(
    process: ProcessIdentity | None, from_s: int, is_included: bool
) -> None:
    revoked = RevokedCertificates({1: from_s})
    assert RevokedCertificates.from_json(revoked.to_json()) == revoked
    assert revoked.include("cl-a", process, CERTIFICATE) is is_included
