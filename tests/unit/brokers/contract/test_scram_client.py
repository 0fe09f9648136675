"""SCRAM as a client: the example of RFC 7677, and servers that answer anything else."""

from __future__ import annotations

import pytest

from brokers.contract.scram_client import ScramClient, ScramRefused
from brokers.contract.users import ITERATIONS_MAX, ITERATIONS_MIN

NONCE = "rOprNGfwEbeRWgbNEkqO"
SERVER_FIRST = b"r=rOprNGfwEbeRWgbNEkqO%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0,s=W22ZaJ0SNY7soEsUEjb6gQ==,i=4096"
CLIENT_FINAL = (
    b"c=biws,r=rOprNGfwEbeRWgbNEkqO%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0,p=dHzbZapWIk4jUhN+Ute9ytag9zjfMHgsqmmiz7AndVQ="
)
SERVER_FINAL = b"v=6rriTRBi23WpRR/wtup+mMhUZUn/dB5nLTJRsjl95G4="


def client() -> ScramClient:
    return ScramClient("SCRAM-SHA-256", "user", "pencil", NONCE)


def test_the_example_of_the_rfc_is_computed() -> None:
    scram = client()
    assert scram.first_message() == b"n,,n=user,r=rOprNGfwEbeRWgbNEkqO"
    assert scram.final_message(SERVER_FIRST) == CLIENT_FINAL
    scram.verify(SERVER_FINAL)


def test_a_name_with_commas_and_equals_signs_is_escaped() -> None:
    assert ScramClient("SCRAM-SHA-512", "a=b,c", "x", "n").first_message() == b"n,,n=a=3Db=2Cc,r=n"


@pytest.mark.parametrize(
    "answer",
    [
        b"", b"\xff", b"e=invalid-proof", b"r=another,s=W22ZaJ0SNY7soEsUEjb6gQ==,i=4096",
        SERVER_FIRST.replace(b"i=4096", f"i={ITERATIONS_MIN - 1}".encode()), SERVER_FIRST.replace(b"i=4096", b"i=x"),
        SERVER_FIRST.replace(b"i=4096", f"i={ITERATIONS_MAX + 1}".encode()),
        SERVER_FIRST.replace(b"s=W", b"s=\xc3\xa4"),
    ],
)  # fmt: skip
def test_an_answer_that_is_no_scram_is_refused(answer: bytes) -> None:
    with pytest.raises(ScramRefused):
        client().final_message(answer)


@pytest.mark.parametrize("answer", [b"", b"v=AAAA", b"v=\xc3\xa4", b"e=other-error"])
def test_a_server_that_does_not_know_the_password_is_refused(answer: bytes) -> None:
    scram = client()
    scram.final_message(SERVER_FIRST)
    with pytest.raises(ScramRefused):
        scram.verify(answer)
