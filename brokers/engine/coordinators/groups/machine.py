"""State machine of one shard of the group coordinator: the groups of one partition of the offsets topic.

It implements `coordinators.interfaces.StateMachine` and passes records and deadlines to the modules that decide about
them (GRP-24, GRP-25). It describes groups (GRP-29), and removes members that leave (GRP-15, GRP-20), itself.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Sequence
from typing import Any

import structlog

from brokers.engine.coordinators.groups import heartbeats, joining, rebalancing, syncing
from brokers.engine.coordinators.groups.checking import FATAL_ERRORS, check_member
from brokers.engine.coordinators.groups.formats import (
    GroupKey,
    UnknownFormat,
    UnreadableRecord,
    read_group_value,
    read_key,
)
from brokers.engine.coordinators.groups.group import Group, GroupState
from brokers.engine.coordinators.groups.offsets import ShardOffsets
from brokers.engine.coordinators.groups.rebalancing import remove_member_and_rebalance, try_to_complete_join
from brokers.engine.coordinators.groups.registry import GroupRegistry
from brokers.engine.coordinators.groups.removals import EVERYTHING_EXISTS, REMOVAL_TIMERS, ExistingNames, OffsetRemovals
from brokers.engine.coordinators.groups.replies import (
    NO_MEMBER,
    DescribedMember,
    DescribeReply,
    GroupEntry,
    JoinRequest,
    Leaver,
    LeaveReply,
    LeftMember,
    SyncRequest,
    join_refusal,
    sync_refusal,
)
from brokers.engine.coordinators.groups.result_builder import JOIN, PENDING, SESSION, SYNC, ResultBuilder
from brokers.engine.coordinators.led_shards import LedShards, Siblings, no_siblings
from brokers.engine.coordinators.result import REPLY_PENDING, CoordinatorResult, Now
from brokers.engine.coordinators.settings import GroupSettings
from brokers.engine.protocol.errors import ErrorCode

log = structlog.get_logger(__name__)


def leave_group(
    settings: GroupSettings, builder: ResultBuilder, group: Group | None, leavers: Sequence[Leaver]
) -> CoordinatorResult:
    """Removes members. The reply is a `LeaveReply` with an error code for each of `leavers`."""
    if group is None:
        unknown = int(ErrorCode.UNKNOWN_MEMBER_ID)
        return builder.result(LeaveReply(0, [LeftMember(*leaver, unknown) for leaver in leavers]))
    left_members = [LeftMember(*leaver, _remove_leaver(settings, builder, group, leaver)) for leaver in leavers]
    try_to_complete_join(builder, group)
    return builder.result(LeaveReply(0, left_members))


def _remove_leaver(settings: GroupSettings, builder: ResultBuilder, group: Group, leaver: Leaver) -> int:
    member_id, group_instance_id = leaver
    if member_id == NO_MEMBER:
        # An administrator removes the static member with this group instance id.
        current = None if group_instance_id is None else group.static_members.get(group_instance_id)
        if current is None:
            return int(ErrorCode.UNKNOWN_MEMBER_ID)
        member_id = current
    elif member_id in group.pending:
        group.pending.discard(member_id)
        builder.cancel_pending_timer(group, member_id)
        return 0
    else:
        code = check_member(group, member_id, group_instance_id)
        if code:
            return code
    remove_member_and_rebalance(builder, settings, group, group.members[member_id])
    return 0


def describe_group(group: Group) -> DescribeReply:
    protocol = group.protocol if group.state is GroupState.STABLE else None
    members = [
        DescribedMember(
            member.member_id,
            member.group_instance_id,
            member.client_id,
            member.client_host,
            b"" if protocol is None else member.metadata(protocol),
            b"" if protocol is None else member.assignment,
        )
        for member in group.members.values()
    ]
    return DescribeReply(0, group.state.value, group.protocol_type or "", protocol or "", members)


def group_entry(group: Group) -> GroupEntry:
    return GroupEntry(group.id, group.protocol_type or "", group.state.value)


class LedGroupShards:
    """The shards of the offsets topic that a broker leads: their groups and their offsets (see `LedShards`)."""

    def __init__(self, partitions: Callable[[], int] = lambda: 1, siblings: Siblings = no_siblings) -> None:
        self.groups: LedShards[GroupRegistry] = LedShards(partitions, siblings)
        self.offsets: LedShards[ShardOffsets] = LedShards(partitions, siblings)


class GroupMachine:
    """State machine of one shard of the group coordinator.

    `groups` are its groups, `offsets` commits and fetches their offsets, `removals` deletes both. `led` are the shards
    that this broker leads, over which the limits of an instance are counted.
    """

    def __init__(
        self,
        current_settings: Callable[[], GroupSettings],
        existing: ExistingNames = EVERYTHING_EXISTS,
        led: LedGroupShards | None = None,
    ) -> None:
        led = LedGroupShards() if led is None else led
        self.groups = GroupRegistry(current_settings, led.groups)
        self.offsets = ShardOffsets(self.groups, led.offsets)
        self.removals = OffsetRemovals(self.offsets, existing)

    @property
    def settings(self) -> GroupSettings:
        """The settings in force now."""
        return self.groups.settings

    # -- calls ---------------------------------------------------------------------------------------------------------

    def join(self, now: Now, ticket: object, request: JoinRequest) -> CoordinatorResult:
        """Handles JoinGroup; the reply is a `JoinReply`, which may be pending until the join phase ends."""
        result = joining.join(self.groups, ResultBuilder(now, ticket), self.groups.get(request.group_id), request)
        self.groups.update_usage(self.groups.get(request.group_id))
        return _mark_final(result)

    def sync(self, now: Now, ticket: object, request: SyncRequest) -> CoordinatorResult:
        """Handles SyncGroup; the reply is a `SyncReply`, which may be pending until the leader has sent its own."""
        group = self.groups.get(request.group_id)
        result = syncing.sync(self.groups, ResultBuilder(now, ticket), group, request)
        self.groups.update_usage(group)
        return _mark_final(result)

    def heartbeat(
        self, now: Now, group_id: str, generation: int, member_id: str, group_instance_id: str | None = None
    ) -> CoordinatorResult:
        """Extends the session of a member; the reply is an error code."""
        return heartbeats.heartbeat(self.groups.get(group_id), now, generation, member_id, group_instance_id)

    def leave(self, now: Now, ticket: object, group_id: str, leavers: Sequence[Leaver]) -> CoordinatorResult:
        """Handles LeaveGroup; the reply is a `LeaveReply` with an error code for each of `leavers`."""
        group = self.groups.get(group_id)
        result = leave_group(self.settings, ResultBuilder(now, ticket), group, leavers)
        self.groups.update_usage(group)
        return result

    def describe(self, group_id: str) -> CoordinatorResult:
        """Describes a group; an unknown one is reported in state Dead, not as an error (GRP-29)."""
        group = self.groups.get(group_id)
        reply = DescribeReply(0, GroupState.DEAD.value) if group is None else describe_group(group)
        return CoordinatorResult(reply, depends_on_offset=self.groups.last_record_offset(group_id), is_read=True)

    def list_groups(self, instance_id: str | None) -> list[GroupEntry]:
        """Returns the groups of an instance, or all groups with `instance_id` None."""
        groups = self.groups if instance_id is None else self.groups.groups_of_instance(instance_id)
        return [group_entry(group) for group in groups]

    # -- records -------------------------------------------------------------------------------------------------------

    def replay(self, key: bytes, value: bytes | None, offset: int, producer_id: int) -> None:
        try:
            decoded_key = read_key(key)
        except UnknownFormat as error:
            log.warning("group_key_unknown", offset=offset, reason=str(error))
            return
        except UnreadableRecord as error:
            log.error("group_key_unreadable", offset=offset, reason=str(error))
            return
        if isinstance(decoded_key, GroupKey):
            self._replay_group(decoded_key.group, value, offset)
        else:
            self.offsets.replay(decoded_key, value, offset, producer_id)
            self.groups.note_offsets_change(decoded_key.group, offset)

    def _replay_group(self, group_id: str, value: bytes | None, offset: int) -> None:
        if value is None:
            self.groups.drop(group_id)
            self.groups.last_drop_offset = max(self.groups.last_drop_offset, offset)
            self.offsets.replay_group_removed(group_id)
            return
        try:
            record = read_group_value(value)
        except (UnknownFormat, UnreadableRecord) as error:
            # The previous state stays. Members that differ from it get an error at their next heartbeat and join again.
            log.error("group_unreadable", group=group_id, offset=offset, reason=str(error))
            return
        group = self.groups.get_or_create(group_id, record.state_timestamp_ms)
        group.restore(record)
        group.last_record_offset = offset
        self.groups.update_usage(group)

    def replay_marker(self, producer_id: int, committed: bool, offset: int) -> None:
        self.offsets.replay_marker(producer_id, committed, offset)

    def on_loaded(self, now: Now) -> CoordinatorResult:
        """Starts a full session timeout for every member, in which it can find the new coordinator (GRP-25).

        A group that is above the maximum size, which may have been lowered, rebalances and becomes smaller (GRP-7).
        """
        builder = ResultBuilder(now)
        for group in self.groups:
            for member in group.members.values():
                builder.set_session_deadline(group, member, member.session_timeout_ms)
            if len(group.members) > self.settings.members_max:
                rebalancing.begin_join_phase(builder, self.settings, group)
        result = builder.result()
        result.timers += self.removals.timers_at_load(now)
        return result

    # -- time ----------------------------------------------------------------------------------------------------------

    def on_timer(self, key: Hashable, now: Now) -> CoordinatorResult:
        if key in REMOVAL_TIMERS:
            return self.removals.on_timer(key, now)
        assert isinstance(key, tuple), "keys of timers are tuples"
        builder = ResultBuilder(now)
        kind, group_id = key[0], key[1]
        group = self.groups.get(group_id)
        if group is None:
            return builder.result()
        if kind == SESSION:
            member = group.members.get(key[2])
            if member is not None:
                heartbeats.on_session_deadline(builder, self.settings, group, member)
        elif kind == PENDING:
            heartbeats.on_pending_deadline(builder, group, key[2])
        elif kind == JOIN:
            rebalancing.on_join_deadline(builder, self.settings, group)
        else:
            assert kind == SYNC, f"unknown timer {kind!r}"
            syncing.on_sync_deadline(builder, self.settings, group)
        self.groups.update_usage(group)
        return builder.result()

    def unload(self) -> list[tuple[object, Any]]:
        self.groups.shards.discard(self.groups)
        self.offsets.shards.discard(self.offsets)
        deferred_replies = self.removals.unload()
        for group in self.groups:
            deferred_replies += _fail_waiting_calls(group, ErrorCode.NOT_COORDINATOR)
            group.state = GroupState.DEAD
        return deferred_replies


def _mark_final(result: CoordinatorResult) -> CoordinatorResult:
    """Marks a refusal that makes a client give up as a read, so that it is released after a leadership check."""
    if result.reply is not REPLY_PENDING and result.reply.error in FATAL_ERRORS:
        result.is_read = True
    return result


def _fail_waiting_calls(group: Group, code: ErrorCode) -> list[tuple[object, Any]]:
    """Clears a group's waiting calls and returns their answers with an error code."""
    deferred_replies: list[tuple[object, Any]] = []
    for member in group.members.values():
        ticket = group.set_join_ticket(member, None)
        if ticket is not None:
            deferred_replies.append((ticket, join_refusal(member.member_id, code)))
        if member.sync_ticket is not None:
            deferred_replies.append((member.sync_ticket, sync_refusal(code)))
            member.sync_ticket = None
    return deferred_replies
