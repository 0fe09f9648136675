"""The table of phases, and address lists."""

from __future__ import annotations

import ipaddress

import pytest
from hypothesis import given
from hypothesis import strategies as st

from instances.lifecycle import phases
from instances.lifecycle.phases import TRANSITIONS, IllegalTransition, Phase, may_transition, require_transition
from instances.topics import allow_lists
from tenants.errors import Invalid

LEGAL = {
    ("requested", "provisioning"), ("requested", "failed"), ("requested", "deleting"),
    ("provisioning", "running"), ("provisioning", "failed"), ("provisioning", "deleting"),
    ("running", "updating"), ("running", "suspended"), ("running", "deleting"),
    ("updating", "running"), ("updating", "suspended"), ("updating", "deleting"),
    ("suspended", "updating"), ("suspended", "deleting"),
    ("failed", "requested"), ("failed", "deleting"),
    ("deleting", "updating"), ("deleting", "suspended"), ("deleting", "deleted"),
}  # fmt: skip


@pytest.mark.parametrize("old", list(Phase))
@pytest.mark.parametrize("new", list(Phase))
def test_every_pair_of_phases_is_legal_or_refused_as_the_table_says(old: Phase, new: Phase) -> None:
    is_legal = old is new or (old.value, new.value) in LEGAL
    assert may_transition(old, new) is is_legal
    if is_legal:
        require_transition(old, new)
    else:
        with pytest.raises(IllegalTransition):
            require_transition(old, new)


def test_every_phase_is_in_the_table_and_only_deleted_is_an_end() -> None:
    assert set(TRANSITIONS) == set(Phase)
    assert [phase for phase, moves in TRANSITIONS.items() if not moves] == [Phase.DELETED]


def test_every_phase_can_end_in_deleted() -> None:
    reachable, seen = {Phase.REQUESTED}, set()
    while reachable:
        phase = reachable.pop()
        seen.add(phase)
        reachable |= TRANSITIONS[phase] - seen
        assert phase is Phase.DELETED or phase is Phase.DELETING or Phase.DELETING in TRANSITIONS[phase]
    assert seen == set(Phase)


def test_deletion_wins_over_suspension() -> None:
    assert phases.document_state(is_deleted=True, is_suspended=True) == "deleting"
    assert phases.document_state(is_deleted=False, is_suspended=True) == "frozen"
    assert phases.document_state(is_deleted=False, is_suspended=False) == "active"
    assert phases.resolved_phase(is_deleted=False, is_suspended=True) is Phase.SUSPENDED


@given(st.lists(st.one_of(st.ip_addresses().map(str), st.ip_addresses(v=4).map(lambda a: f"::ffff:{a}")), max_size=20))
def test_a_normalised_list_is_stable_sorted_and_free_of_duplicates(addresses: list[str]) -> None:
    once = allow_lists.normalized_addresses(addresses, "/produce")
    assert allow_lists.normalized_addresses(once, "/produce") == once
    assert len(set(once)) == len(once)
    for address in addresses:
        parsed = ipaddress.ip_address(address)
        mapped = getattr(parsed, "ipv4_mapped", None)
        assert str(mapped or parsed) in once


@pytest.mark.parametrize(
    "wrong", ["", " ", "10.0.0.0/33", "10.1.2.3/8", "fe80::1%eth0", "localhost", "1.2.3", "01.2.3.4"]
)
def test_an_invalid_address_is_refused_with_a_pointer_to_it(wrong: str) -> None:
    with pytest.raises(Invalid) as refusal:
        allow_lists.normalized_addresses(["10.0.0.1", wrong], "/consume")
    assert [error.pointer for error in refusal.value.errors] == ["/consume/1"]
