"""A shard of groups over a log in memory, and members that send requests to it. The test moves the time."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from brokers.engine.coordinators.groups.group import Group, GroupState
from brokers.engine.coordinators.groups.machine import GroupMachine, LedGroupShards
from brokers.engine.coordinators.groups.replies import JoinReply, JoinRequest, Leaver, SyncReply, SyncRequest
from brokers.engine.coordinators.result import REPLY_PENDING
from brokers.engine.coordinators.runtime import Runtime
from brokers.engine.coordinators.settings import GroupSettings
from brokers.engine.coordinators.shard import ALARM_SLACK_MS
from tests.unit.brokers.engine.coordinators.fakes import Call, FakeLog, FakeLoop

GROUP = "ins-aaaaaaaa.g"
SESSION_MS = 10_000
REBALANCE_MS = 60_000
COMMIT_MS = 5_000
RANGE = (("range", b"r"),)


class Shard:
    """A shard of groups; with `at_once`, every append is committed immediately. `led` are the shards of its broker."""

    def __init__(
        self, *, at_once: bool = True, log: FakeLog | None = None, led: LedGroupShards | None = None, **settings: Any
    ) -> None:
        self.loop = FakeLoop()
        self.log = log or FakeLog(at_once=at_once)
        self.settings = GroupSettings(**{"initial_rebalance_delay_ms": 0, **settings})
        self.runtime: Runtime[GroupMachine] = Runtime(
            topic="__consumer_offsets",
            new_machine=lambda _: GroupMachine(lambda: self.settings, led=led),
            loop=self.loop,
            commit_timeout_ms=COMMIT_MS,
        )
        self.runtime.partitions = 1
        self.lead()

    def lead(self) -> None:
        """Elect this broker: its state is loaded from the log."""
        self.log.is_led = True
        self.log.leader_epoch += 1
        self.runtime.lead(self.log)
        self.loop.turn()

    def reload(self) -> None:
        self.runtime.resign(0)
        self.lead()

    @property
    def machine(self) -> GroupMachine:
        (shard,) = self.runtime.shards()
        return shard.machine

    def group(self, id: str = GROUP) -> Group:
        result = self.machine.groups.get(id)
        assert result is not None, f"nobody knows {id}"
        return result

    @property
    def state(self) -> GroupState:
        return self.group().state

    def ask(self, operation: Any, id: str = GROUP) -> Call:
        """Run an operation and return its call; `replies` holds the reply once there is one."""
        call = Call()
        reply = self.runtime.perform(id, operation, call.ticket)
        if reply is not REPLY_PENDING:
            call.ticket.abandon()
            call.replies.append(reply)
        return call

    def advance(self, by_ms: int) -> None:
        """Advance the time by `by_ms` plus the grain of the timers, by which deadlines fire late."""
        self.loop.advance(by_ms + ALARM_SLACK_MS)


class Member:
    """A group member; `id` and `generation` are those of the last reply."""

    def __init__(
        self,
        shard: Shard,
        *,
        instance: str | None = None,
        client: str = "client",
        protocols: Sequence[tuple[str, bytes]] = RANGE,
        group: str = GROUP,
        **more: Any,
    ) -> None:
        self.shard = shard
        self.instance = instance
        self.client = client
        self.protocols = protocols
        self.group = group
        self.more = more
        self.id = ""
        self.generation = -1
        self.leads = False

    def join(self, **changes: Any) -> Call:
        request = JoinRequest(
            **{
                "group_id": self.group,
                "member_id": self.id,
                "group_instance_id": self.instance,
                "client_id": self.client,
                "client_host": "/10.0.0.1",
                "session_timeout_ms": SESSION_MS,
                "rebalance_timeout_ms": REBALANCE_MS,
                "protocol_type": "consumer",
                "protocols": self.protocols,
                **self.more,
                **changes,
            }
        )
        return self.shard.ask(lambda machine, now, ticket: machine.join(now, ticket, request), self.group)

    def take(self, call: Call) -> JoinReply:
        """Take over member id, generation and leadership from the reply to a join."""
        (reply,) = call.replies
        assert isinstance(reply, JoinReply)
        assert reply.error == 0, reply
        self.id, self.generation, self.leads = reply.member_id, reply.generation, reply.leader == reply.member_id
        return reply

    def sync(self, assignments: dict[str, bytes] | None = None, **changes: Any) -> Call:
        request = SyncRequest(
            **{
                "group_id": self.group,
                "generation": self.generation,
                "member_id": self.id,
                "group_instance_id": self.instance,
                "protocol_type": None,
                "protocol": None,
                "assignments": tuple((assignments or {}).items()),
                **changes,
            }
        )
        return self.shard.ask(lambda machine, now, ticket: machine.sync(now, ticket, request), self.group)

    def heartbeat(self, generation: int | None = None, **changes: Any) -> int:
        heartbeat_generation = self.generation if generation is None else generation
        who = {"member_id": self.id, "group_instance_id": self.instance, **changes}
        call = self.shard.ask(
            lambda machine, now, ticket: machine.heartbeat(now, self.group, heartbeat_generation, **who), self.group
        )
        (code,) = call.replies
        assert isinstance(code, int)
        return code

    def leave(self) -> Call:
        return leave(self.shard, Leaver(self.id, self.instance), group=self.group)


def leave(shard: Shard, *leavers: Leaver, group: str = GROUP) -> Call:
    return shard.ask(lambda machine, now, ticket: machine.leave(now, ticket, group, leavers), group)


def complete(*members: Member) -> None:
    """Bring all members into one stable generation; the assignment of each is its id."""
    waiting: dict[Member, Call] = {}
    for member in members:
        waiting[member] = member.join()
        for earlier in members[: members.index(member)]:
            # Members that have joined already follow the rebalance.
            if waiting[earlier].replies:
                earlier.take(waiting[earlier])
                waiting[earlier] = earlier.join()
    for member, call in waiting.items():
        member.take(call)
    (leader,) = [member for member in members if member.leads]
    syncs = {member: member.sync() for member in members if member is not leader}
    syncs[leader] = leader.sync({member.id: member.id.encode() for member in members})
    for member, call in syncs.items():
        assert [(reply.error, reply.assignment) for reply in call.replies] == [(0, member.id.encode())]


def error(call: Call) -> int:
    """Return the error code of the call's only reply."""
    (reply,) = call.replies
    return int(reply.error)


def given(call: Call) -> bytes:
    (reply,) = call.replies
    assert isinstance(reply, SyncReply)
    assert reply.error == 0, reply
    return reply.assignment
