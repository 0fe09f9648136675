"""Ports and addresses of hosts beside each other."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from brokers.operations.host_rules import HostAddresses, broker_ports, find_overlap, normalised_address

HOST = HostAddresses(
    name="a",
    bind_host="10.0.0.1",
    advertised_host="a.example",
    internal_host="10.0.0.1",
    port_first=20_000,
    port_last=20_099,
)


def other(**changes: object) -> HostAddresses:
    elsewhere = {"name": "b", "bind_host": "10.0.0.2", "advertised_host": "b.example", "internal_host": "10.0.0.2"}
    return replace(HOST, **(elsewhere | changes))  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("beside", "code"),
    [
        (other(), None),
        (other(advertised_host="A.example"), "ports_overlap"),
        (other(internal_host="10.0.0.1"), "ports_overlap"),
        (other(bind_host="10.0.0.1"), "ports_overlap"),
        (other(advertised_host="a.example", port_first=20_100, port_last=20_199), None),
        (other(advertised_host="a.example", port_first=20_099, port_last=20_199), "ports_overlap"),
        (other(advertised_host="a.example", port_first=1, port_last=2, own_ports=frozenset({20_050})), "ports_taken"),
    ],
)
def test_hosts_with_one_address_have_no_port_in_common(beside: HostAddresses, code: str | None) -> None:
    clash = find_overlap(HOST, [beside])
    assert (None if clash is None else clash.code) == code


def test_two_machines_that_listen_everywhere_are_not_one_address() -> None:
    assert find_overlap(replace(HOST, bind_host="0.0.0.0"), [other(bind_host="0.0.0.0")]) is None


def test_a_range_does_not_cover_the_ports_of_the_hosts_own_brokers() -> None:
    clash = find_overlap(replace(HOST, own_ports=frozenset({20_001})), [])
    assert clash is not None
    assert "Port 20001" in clash.detail


@pytest.mark.parametrize(
    ("text", "form"),
    [
        ("[::1]", "::1"),
        ("kafka-1.example.com", "kafka-1.example.com"),
        ("0.0.0.0", None),
        ("224.0.0.1", None),
        ("a b", None),
        ("host:9092", None),
        ("http://x", None),
        ("", None),
    ],
)
def test_an_address_is_brought_into_one_form_or_refused(text: str, form: str | None) -> None:
    assert normalised_address(text) == form


def test_the_first_broker_of_a_host_has_its_ports_below_those_of_tenants() -> None:
    assert broker_ports(HOST, [], []) == (19_001, 19_101)
    assert broker_ports(replace(HOST, own_ports=frozenset({19_001, 19_101})), [], [(19_001, 19_101)]) == (
        19_002, 19_102,
    )  # fmt: skip


@given(
    first=st.integers(1_024, 65_000),
    width=st.integers(0, 500),
    brokers=st.integers(1, 12),
    near_first=st.integers(1_024, 65_000),
)
def test_ports_of_brokers_are_never_those_of_tenants_or_of_each_other(
    first: int, width: int, brokers: int, near_first: int
) -> None:
    host = replace(HOST, port_first=first, port_last=min(65_535, first + width))
    near = other(bind_host="10.0.0.1", port_first=near_first, port_last=min(65_535, near_first + 99))
    used: list[tuple[int, int]] = []
    for _ in range(brokers):
        taken = frozenset(port for pair in used for port in pair)
        pair = broker_ports(replace(host, own_ports=taken), [near], used)
        assert pair is not None
        assert not taken & set(pair)
        assert pair[0] != pair[1]
        assert not any(port in item.tenant_ports for port in pair for item in (host, near))
        used.append(pair)
