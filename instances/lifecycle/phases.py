"""Lifecycle of an instance: its phases, their meaning for clients, and the legal transitions between them. Pure.

    requested → provisioning → running ⇄ updating
                     ↓              ↓      ↓↑
                   failed          suspended         any of them but deleted → deleting → deleted

A phase combines the requested state with the progress towards it; the instance's `reason` is the cause. Services make
the transitions that a person requests, the reconciler those that follow; both call `require_transition`.
"""

from __future__ import annotations

from enum import StrEnum
from typing import Literal

DocumentState = Literal["active", "frozen", "deleting"]


class Phase(StrEnum):
    """Phase of an instance's lifecycle."""

    REQUESTED = "requested"
    """Accepted and stored; nothing exists outside PostgreSQL until a worker begins to provision it."""

    PROVISIONING = "provisioning"
    """Being placed, addressed and published. Clients may connect once the listeners open, before it ends."""

    RUNNING = "running"
    """All brokers have confirmed the configuration, and a probe has produced and read a message."""

    UPDATING = "updating"
    """Clients are served, with limits or settings that not every broker has confirmed."""

    SUSPENDED = "suspended"
    """Consume works, produce is refused (CKA-14). Only a resumption or a deletion ends it."""

    FAILED = "failed"
    """Never ran, because of `reason`. Nothing is charged. A retry starts again with REQUESTED."""

    DELETING = "deleting"
    """Closed to clients. Data is kept until `restorable_until`, and a restore undoes the deletion."""

    DELETED = "deleted"
    """Data, address and name are deleted. The row stays, because ids are never reused."""


TRANSITIONS: dict[Phase, frozenset[Phase]] = {
    Phase.REQUESTED: frozenset({Phase.PROVISIONING, Phase.FAILED, Phase.DELETING}),
    Phase.PROVISIONING: frozenset({Phase.RUNNING, Phase.FAILED, Phase.DELETING}),
    Phase.RUNNING: frozenset({Phase.UPDATING, Phase.SUSPENDED, Phase.DELETING}),
    Phase.UPDATING: frozenset({Phase.RUNNING, Phase.SUSPENDED, Phase.DELETING}),
    Phase.SUSPENDED: frozenset({Phase.UPDATING, Phase.DELETING}),
    Phase.FAILED: frozenset({Phase.REQUESTED, Phase.DELETING}),
    Phase.DELETING: frozenset({Phase.UPDATING, Phase.SUSPENDED, Phase.DELETED}),
    Phase.DELETED: frozenset(),
}

# Phases in which brokers have (or may have) its listeners and topics: the data plane may be queried.
REACHABLE = frozenset({Phase.RUNNING, Phase.UPDATING, Phase.SUSPENDED})
# Phases in which a tenant may change size, name and settings.
CHANGEABLE = frozenset({Phase.RUNNING, Phase.UPDATING, Phase.SUSPENDED})
# Phases with pending work: the reconciler's sweep handles these first.
WITH_PENDING_WORK = frozenset({Phase.REQUESTED, Phase.PROVISIONING, Phase.UPDATING})
# Phases that are counted, summed and priced. A failed or deleted instance costs nothing, though it is still listed.
COUNTED = frozenset(Phase) - {Phase.FAILED, Phase.DELETING, Phase.DELETED}


class IllegalTransition(Exception):
    """Raised for a transition that is not in the table: a bug, or a race that the caller has to resolve."""

    def __init__(self, old: Phase, new: Phase) -> None:
        super().__init__(f"an instance cannot go from {old.value} to {new.value}")
        self.old = old
        self.new = new


def may_transition(old: Phase, new: Phase) -> bool:
    """True if the table has the transition; staying is always legal."""
    return old is new or new in TRANSITIONS[old]


def require_transition(old: Phase, new: Phase) -> None:
    """Raises `IllegalTransition` unless the table has the transition."""
    if not may_transition(old, new):
        raise IllegalTransition(old, new)


def document_state(*, is_deleted: bool, is_suspended: bool) -> DocumentState:
    """Returns the state in the document for brokers: deletion takes precedence over suspension."""
    if is_deleted:
        return "deleting"
    return "frozen" if is_suspended else "active"


def resolved_phase(*, is_deleted: bool, is_suspended: bool) -> Phase:
    """Returns the phase of an instance once every broker has confirmed its configuration."""
    if is_deleted:
        return Phase.DELETING
    return Phase.SUSPENDED if is_suspended else Phase.RUNNING
