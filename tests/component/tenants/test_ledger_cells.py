"""Cells of the audit log's CSV, which a spreadsheet must read as text and never as a formula."""

from __future__ import annotations

from decimal import Decimal

import pytest

from tenants.csv_files import inert, response


@pytest.mark.parametrize("text", ["=1+1", "+1", "-1", "@SUM(A1)", "\t=1+1", "\r=1+1", "\n=1+1", " =1+1", "\tx", "\rx"])
def test_a_cell_that_could_be_run_is_quoted(text: str) -> None:
    assert inert(text) == f"'{text}"


@pytest.mark.parametrize("text", ["", "orders", "a=b", "ins-aaaaaaaa/orders", " x"])
def test_any_other_stays_as_it_is(text: str) -> None:
    assert inert(text) == text


@pytest.mark.parametrize(
    ("for_excel", "written"),
    [
        (False, 'name,amount\r\n"a;b",-5.89\r\nc,0.000000000001\r\n'),
        (True, '\ufeffname;amount\r\n"a;b";-5,89\r\nc;0,000000000001\r\n'),
    ],
)
def test_a_file_for_excel_has_a_mark_semicolons_and_decimal_commas(for_excel: bool, written: str) -> None:
    rows = [("a;b", Decimal("-5.89")), ("c", Decimal("0.000000000001") if for_excel else "0.000000000001")]
    answer = response("x.csv", ("name", "amount"), rows, for_excel=for_excel)
    found = b"".join(answer.streaming_content).decode()  # type: ignore[arg-type]
    assert found == (written if for_excel else written.replace('"a;b"', "a;b"))
