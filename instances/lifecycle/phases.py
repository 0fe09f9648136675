"""The life of an instance: its phases, what each means for clients, and the only legal moves between them. Pure.

    requested → provisioning → running ⇄ updating
                     ↓              ↓      ↓↑
                   failed          suspended         any of them but deleted → deleting → deleted

A phase says what is wanted and how far it got; `reason` on the instance says why. Moves are made by services (what a
person asked for) and by the reconciler (what became true), always through `require_transition`.
"""

from __future__ import annotations

from enum import StrEnum
from typing import Literal

DocumentState = Literal["active", "frozen", "deleting"]


class Phase(StrEnum):
    """Where an instance is in its life."""

    REQUESTED = "requested"
    """Accepted and written down; nothing exists outside PostgreSQL. Leaves when a worker takes it up."""

    PROVISIONING = "provisioning"
    """Being placed, addressed and published. Clients may connect once the listeners open, before it ends."""

    RUNNING = "running"
    """The brokers serve exactly what is wanted, and a message went in and out."""

    UPDATING = "updating"
    """Serving all the while, with limits or settings that not every broker has confirmed."""

    SUSPENDED = "suspended"
    """Consume works, produce is refused (CKA-14). Left only by resuming or deleting."""

    FAILED = "failed"
    """Never ran; `reason` says why. Nothing is charged. Retry begins again at requested."""

    DELETING = "deleting"
    """Closed to clients, data kept until `restorable_until`; restore brings it back as it was."""

    DELETED = "deleted"
    """Data, address and name are given up. The row stays, because ids are never reused."""


MOVES: dict[Phase, frozenset[Phase]] = {
    Phase.REQUESTED: frozenset({Phase.PROVISIONING, Phase.FAILED, Phase.DELETING}),
    Phase.PROVISIONING: frozenset({Phase.RUNNING, Phase.FAILED, Phase.DELETING}),
    Phase.RUNNING: frozenset({Phase.UPDATING, Phase.SUSPENDED, Phase.DELETING}),
    Phase.UPDATING: frozenset({Phase.RUNNING, Phase.SUSPENDED, Phase.DELETING}),
    Phase.SUSPENDED: frozenset({Phase.UPDATING, Phase.DELETING}),
    Phase.FAILED: frozenset({Phase.REQUESTED, Phase.DELETING}),
    Phase.DELETING: frozenset({Phase.UPDATING, Phase.SUSPENDED, Phase.DELETED}),
    Phase.DELETED: frozenset(),
}

# Brokers have (or may have) listeners and topics of it: the admin client to the data plane may be used.
REACHABLE = frozenset({Phase.RUNNING, Phase.UPDATING, Phase.SUSPENDED})
# Phases in which a tenant may change size, name and settings.
CHANGEABLE = frozenset({Phase.RUNNING, Phase.UPDATING, Phase.SUSPENDED})
# Phases with pending work: the reconciler's sweep handles these first.
MOVING = frozenset({Phase.REQUESTED, Phase.PROVISIONING, Phase.UPDATING})
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
    return old is new or new in MOVES[old]


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
