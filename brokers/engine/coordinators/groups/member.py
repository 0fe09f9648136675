"""One member of a group: what it said when it joined, what it was given, and what it waits for."""

from __future__ import annotations

from collections.abc import Collection, Sequence

from brokers.engine.coordinators.groups.formats import MemberRecord


class Member:
    """`join_ticket` and `sync_ticket` are calls of it that are not answered yet.

    `deadline_ms` is the end of its session, `armed_ms` when the timer of that rings, which may be earlier: a heartbeat
    moves the deadline alone. `is_fresh`: it has not got its first answer, so it cannot know that it is a member.
    """

    __slots__ = (
        "armed_ms",
        "assignment",
        "client_host",
        "client_id",
        "deadline_ms",
        "group_instance_id",
        "is_fresh",
        "join_ticket",
        "member_id",
        "metadata_bytes",
        "protocols",
        "rebalance_timeout_ms",
        "session_timeout_ms",
        "sync_ticket",
    )

    def __init__(
        self,
        member_id: str,
        group_instance_id: str | None,
        client_id: str,
        client_host: str,
        *,
        rebalance_timeout_ms: int,
        session_timeout_ms: int,
        protocols: Sequence[tuple[str, bytes]],
        assignment: bytes = b"",
    ) -> None:
        self.member_id = member_id
        self.group_instance_id = group_instance_id
        self.client_id = client_id
        self.client_host = client_host
        self.rebalance_timeout_ms = rebalance_timeout_ms
        self.session_timeout_ms = session_timeout_ms
        self.protocols = tuple(protocols)
        self.metadata_bytes = metadata_bytes(protocols)
        self.assignment = assignment
        self.join_ticket: object | None = None
        self.sync_ticket: object | None = None
        self.is_fresh = False
        self.deadline_ms = 0
        self.armed_ms: int | None = None

    @classmethod
    def restored(cls, record: MemberRecord, protocol: str) -> Member:
        """From a group's record, which keeps what was said for the protocol that was chosen."""
        return cls(
            record.member_id,
            record.group_instance_id,
            record.client_id,
            record.client_host,
            rebalance_timeout_ms=record.rebalance_timeout_ms,
            session_timeout_ms=record.session_timeout_ms,
            protocols=((protocol, record.subscription),),
            assignment=record.assignment,
        )

    def restore(self, record: MemberRecord, protocol: str) -> None:
        """Becomes what a later record says. Live it offers what is in there, and more besides; at load it knows what
        an earlier record held, and of that nothing counts.
        """
        self.assignment = record.assignment
        self.rebalance_timeout_ms = record.rebalance_timeout_ms
        self.session_timeout_ms = record.session_timeout_ms
        if (protocol, record.subscription) not in self.protocols:
            self.protocols = ((protocol, record.subscription),)
            self.metadata_bytes = metadata_bytes(self.protocols)

    def recorded(self, protocol: str, assignment: bytes) -> MemberRecord:
        return MemberRecord(
            self.member_id,
            self.group_instance_id,
            self.client_id,
            self.client_host,
            self.rebalance_timeout_ms,
            self.session_timeout_ms,
            self.metadata(protocol),
            assignment,
        )

    @property
    def is_waiting(self) -> bool:
        return self.join_ticket is not None or self.sync_ticket is not None

    def metadata(self, protocol: str) -> bytes:
        """What it says about itself for a protocol that it offered."""
        for name, metadata in self.protocols:
            if name == protocol:
                return metadata
        raise AssertionError(f"the group chose {protocol!r}, which a member never offered")

    def vote(self, candidates: Collection[str]) -> str:
        """Of `candidates`, each of which it offers, the one it likes best (GRP-10)."""
        for name, _ in self.protocols:
            if name in candidates:
                return name
        raise AssertionError("a candidate is what every member offers")


def metadata_bytes(protocols: Sequence[tuple[str, bytes]]) -> int:
    return sum(len(name) + len(metadata) for name, metadata in protocols)
