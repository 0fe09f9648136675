"""Valid codes of an authenticator (RFC 6238)."""

from __future__ import annotations

import base64

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tenants.second_factor.codes import STEP_S, matching_step, normalized
from tests.testkit.factors import code_at

SECRET = base64.b32encode(b"12345678901234567890").decode()


@pytest.mark.parametrize(
    ("now_s", "code"), [(59, "287082"), (1111111109, "081804"), (1234567890, "005924"), (20000000000, "353130")]
)
def test_the_codes_are_those_of_the_standard(now_s: int, code: str) -> None:
    assert matching_step(SECRET, code, now_s) == now_s // STEP_S


@given(st.integers(min_value=100, max_value=10**10), st.integers(min_value=-3, max_value=3))
def test_a_clock_may_be_off_by_one_step(now_s: int, steps: int) -> None:
    result = matching_step(SECRET, code_at(SECRET, now_s + steps * STEP_S), now_s)
    if abs(steps) <= 1:
        assert result is not None
    else:
        assert result != now_s // STEP_S + steps, "a code of so long ago, or so far ahead, is right"


@given(st.text(max_size=32))
def test_anything_else_is_a_wrong_code_and_no_fault(code: str) -> None:
    result = matching_step(SECRET, normalized(code), 10**9)
    assert result is None or normalized(code) == code_at(SECRET, result * STEP_S)


def test_spaces_and_hyphens_are_no_part_of_a_code() -> None:
    assert normalized(" 123 456-7\t") == "1234567"
