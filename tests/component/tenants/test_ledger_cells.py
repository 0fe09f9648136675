"""What the audit log's CSV says to a spreadsheet: text, never a formula."""

from __future__ import annotations

import pytest

from tenants.csv_files import inert


@pytest.mark.parametrize("text", ["=1+1", "+1", "-1", "@SUM(A1)", "\t=1+1", "\r=1+1", "\n=1+1", " =1+1", "\tx", "\rx"])
def test_a_cell_that_could_be_run_is_quoted(text: str) -> None:
    assert inert(text) == f"'{text}"


@pytest.mark.parametrize("text", ["", "orders", "a=b", "ins-aaaaaaaa/orders", " x"])
def test_any_other_stays_as_it_is(text: str) -> None:
    assert inert(text) == text
