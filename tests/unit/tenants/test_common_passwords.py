"""Common passwords in disguise are refused, passphrases are accepted."""

from __future__ import annotations

import secrets

import pytest
from django.contrib.auth.password_validation import validate_password
from django.core.exceptions import ValidationError
from hypothesis import given
from hypothesis import strategies as st

from tenants.common_passwords import DisguisedPasswordValidator, candidates


@pytest.mark.parametrize(
    "password",
    ["password123!", "P@ssw0rd2026", "1234dragon5678", "!!Football!!", "Qwertyuiop", "l3tm31n!!!", "abcabcabcabc",
     "aaaaaaaaaaaa", "12341234123", "sunshine#2024", "  iloveyou!  "],
)  # fmt: skip
def test_a_common_password_in_disguise_is_refused(password: str) -> None:
    with pytest.raises(ValidationError):
        validate_password(password)


@pytest.mark.parametrize(
    "password",
    ["a long enough passphrase", "correct horse battery staple", "purple monkey dishwasher", "Wq7-lanternfish-02",
     "the next one is longer", "ops have another"],
)  # fmt: skip
def test_a_passphrase_is_taken(password: str) -> None:
    validate_password(password)


def test_a_generated_password_is_accepted() -> None:
    for _ in range(200):
        validate_password(secrets.token_urlsafe(12) + "xK")


@given(before=st.text("0123456789!#-_ ", max_size=6), behind=st.text("0123456789!#-_ ", max_size=6))
def test_a_common_password_is_refused_with_any_text_around_it(before: str, behind: str) -> None:
    assert "dragon" in candidates(f"{before}Dragon{behind}")
    with pytest.raises(ValidationError):
        DisguisedPasswordValidator().validate(f"{before}Dragon{behind}")
