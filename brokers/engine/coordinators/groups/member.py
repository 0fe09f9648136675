"""Member of a group: the contents of its JoinGroup, its assignment and its waiting calls."""

from __future__ import annotations

from collections.abc import Collection, Sequence

from brokers.engine.coordinators.groups.formats import MemberRecord


class Member:
    """A member of a group.

    `join_ticket` and `sync_ticket` are its calls that are not answered yet. `deadline_ms` is the end of its session,
    `timer_fires_ms` the time at which the session timer fires; it may be earlier, because a heartbeat moves only the
    deadline. `is_new` is True until the member gets its first reply.
    """

    __slots__ = (
        "assignment",
        "client_host",
        "client_id",
        "deadline_ms",
        "group_instance_id",
        "is_new",
        "join_ticket",
        "member_id",
        "metadata_bytes",
        "protocols",
        "rebalance_timeout_ms",
        "session_timeout_ms",
        "sync_ticket",
        "timer_fires_ms",
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
        self.is_new = False
        self.deadline_ms = 0
        self.timer_fires_ms: int | None = None

    @classmethod
    def restored(cls, record: MemberRecord, protocol: str) -> Member:
        """Makes a member from a group's record, which has its metadata for the chosen protocol only."""
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
        """Applies a later record.

        A live member offers the recorded protocol among others, which it keeps. At load the protocols come from an
        earlier record and are replaced.
        """
        self.assignment = record.assignment
        self.rebalance_timeout_ms = record.rebalance_timeout_ms
        self.session_timeout_ms = record.session_timeout_ms
        if (protocol, record.subscription) not in self.protocols:
            self.protocols = ((protocol, record.subscription),)
            self.metadata_bytes = metadata_bytes(self.protocols)

    def to_record(self, protocol: str, assignment: bytes) -> MemberRecord:
        """Returns the member as its group's record stores it, with its metadata for the chosen protocol."""
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
        """Returns the metadata for a protocol that the member offers."""
        for name, metadata in self.protocols:
            if name == protocol:
                return metadata
        raise AssertionError(f"the group's protocol {protocol!r} is not offered by a member")

    def vote(self, candidates: Collection[str]) -> str:
        """Returns the candidate that the member prefers; it offers all of them (GRP-10)."""
        for name, _ in self.protocols:
            if name in candidates:
                return name
        raise AssertionError("a member offers none of the candidates")


def metadata_bytes(protocols: Sequence[tuple[str, bytes]]) -> int:
    """Returns the size of the names and metadata of protocols."""
    return sum(len(name) + len(metadata) for name, metadata in protocols)
