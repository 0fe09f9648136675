"""Invoices issued by version 1 of the rules are recomputed unchanged, whatever the present rules are."""

from __future__ import annotations

import json
from typing import Any

import pytest

from billing.invoices.snapshot import from_json, to_json

# The same price list twice in a month: 100 GB in the first half, 500 GB in the second.
TERMS = {
    "commitment": ({"tiers": [[None, "0.02"]], "commit": "500"}, ["10.00", "10.00"], ["12.00"]),
    "volume tier": (
        {"tiers": [["300", "0.06"], [None, "0.03"]], "scheme": "volume"}, ["6.00", "15.00"], ["18.00"],
    ),
    "overage": ({"tiers": [[None, "0.02"]], "commit": "500", "overage_price": "0.04"}, ["10.00", "10.00"],
                ["10.00", "4.00"]),
}  # fmt: skip


def snapshot(version: int, terms: dict[str, Any]) -> dict[str, Any]:
    """Returns the JSON in the form of the database."""
    component = {
        "meter": "bytes_in", "scheme": terms.get("scheme", "graduated"), "included": "0",
        "tiers": [{"up_to": up_to, "unit_price": price, "flat": "0"} for up_to, price in terms["tiers"]],
        "commit": terms.get("commit", "0"), "overage_price": terms.get("overage_price"),
    }  # fmt: skip
    return {
        "version": version,
        "period": {"start": "2026-06-01T00:00:00+00:00", "end": "2026-07-01T00:00:00+00:00"},
        "usage": [
            {
                "instance_id": "ins-aaaaaaaa",
                "spans": [
                    {"plan": "stream", "bandwidth_mb_s": 20, "storage_gb": 100, "start": "2026-05-01T00:00:00+00:00",
                     "end": None, "only_storage": False}
                ],
                "hours": [
                    ["2026-06-03T12:00:00+00:00", 100 * 10**9, 0, "0", "0", 0],
                    ["2026-06-20T12:00:00+00:00", 500 * 10**9, 0, "0", "0", 0],
                ],
                "rate_points": [],
            }
        ],
        "prices": [
            {"plan": "stream", "currency": "EUR", "effective_from": since, "components": [component]}
            for since in ("2026-01-01T00:00:00+00:00", "2026-06-16T00:00:00+00:00")
        ],
        "agreement": {"currency": "EUR", "discounts": [], "minimum": "0", "tax_percent": "0"},
    }  # fmt: skip


@pytest.mark.parametrize("name", TERMS)
def test_an_invoice_of_version_1_comes_out_as_it_was_issued(name: str) -> None:
    terms, then, now = TERMS[name]
    assert [str(line.amount) for line in from_json(snapshot(1, terms)).compute_bill().lines] == then
    assert [str(line.amount) for line in from_json(snapshot(2, terms)).compute_bill().lines] == now


def test_a_snapshot_keeps_its_version() -> None:
    raw = snapshot(1, TERMS["overage"][0])
    assert json.loads(json.dumps(to_json(from_json(raw)))) == raw
