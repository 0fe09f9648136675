"""Registry of the groups of one shard, by id and by instance."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Final, NamedTuple

from brokers.contract import coordinator_limits
from brokers.engine.coordinators.groups.group import Group, State
from brokers.engine.coordinators.led_shards import LedShards
from brokers.engine.coordinators.result import NO_RECORD
from brokers.engine.coordinators.settings import GroupSettings
from instances.naming import split_internal


class GroupUsage(NamedTuple):
    """Groups and members of an instance in one shard; `members` includes pending member ids."""

    groups: int
    members: int
    member_bytes: int


NOTHING: Final = GroupUsage(0, 0, 0)


class _InstanceGroups:
    """Groups of one instance, with the number and bytes of their members."""

    __slots__ = ("groups", "member_bytes", "members")

    def __init__(self) -> None:
        self.groups: dict[str, Group] = {}
        self.members = 0
        self.member_bytes = 0

    def count(self, group: Group, counted: tuple[int, int]) -> None:
        self.members += counted[0] - group.counted[0]
        self.member_bytes += counted[1] - group.counted[1]
        group.counted = counted


class GroupRegistry:
    """Groups of one shard, by internal id.

    `dropped_at` is the log offset of the last record that ended a group. `shards` are all shards that this broker
    leads, this one included. `current_settings` returns the settings in force, some of which operators change at run
    time.
    """

    __slots__ = ("_by_id", "_by_instance", "_current_settings", "dropped_at", "shards")

    def __init__(
        self, current_settings: Callable[[], GroupSettings], shards: LedShards[GroupRegistry] | None = None
    ) -> None:
        self._current_settings = current_settings
        self.shards: LedShards[GroupRegistry] = LedShards() if shards is None else shards
        self.shards.add(self)
        self.dropped_at = NO_RECORD
        self._by_id: dict[str, Group] = {}
        self._by_instance: dict[str | None, _InstanceGroups] = {}

    @property
    def settings(self) -> GroupSettings:
        """The settings in force now."""
        return self._current_settings()

    def __iter__(self) -> Iterator[Group]:
        """Iterates over all groups; groups may be dropped during the iteration."""
        return iter(tuple(self._by_id.values()))

    def __len__(self) -> int:
        return len(self._by_id)

    def get(self, id: str) -> Group | None:
        return self._by_id.get(id)

    def of_instance(self, instance_id: str) -> tuple[Group, ...]:
        instance_groups = self._by_instance.get(instance_id)
        return () if instance_groups is None else tuple(instance_groups.groups.values())

    def has_room(self, id: str) -> bool:
        """True if the instance that a group id belongs to may have one more group on this broker."""
        instance_id = split_internal(id)[0]
        if instance_id is None:
            return True
        groups = self.shards.total(lambda shard: shard.usage(instance_id).groups)
        return groups < self.shards.share_of(coordinator_limits.GROUPS_PER_INSTANCE_MAX)

    def has_memory(self, id: str, more_bytes: int, more_members: int = 0) -> bool:
        """True if the instance that a group id belongs to may have further members and bytes on this broker.

        `more_bytes` and `more_members` are added to those of all its groups on this broker.
        """
        instance_id = split_internal(id)[0]
        if instance_id is None:
            return True
        shards = self.shards
        if more_members > 0:
            members = shards.total(lambda shard: shard.usage(instance_id).members)
            limit = shards.share_of(coordinator_limits.MEMBERS_PER_INSTANCE_MAX, coordinator_limits.MEMBERS_FLOOR)
            if members + more_members > limit:
                return False
        if more_bytes <= 0:
            return True
        taken_bytes = shards.total(lambda shard: shard.usage(instance_id).member_bytes)
        limit = shards.share_of(coordinator_limits.MEMBER_BYTES_PER_INSTANCE_MAX, coordinator_limits.MEMBER_BYTES_FLOOR)
        return taken_bytes + more_bytes <= limit

    def usage(self, instance_id: str) -> GroupUsage:
        """Returns the groups and members that an instance has in this shard."""
        instance_groups = self._by_instance.get(instance_id)
        return (
            NOTHING
            if instance_groups is None
            else GroupUsage(len(instance_groups.groups), instance_groups.members, instance_groups.member_bytes)
        )

    def recount(self, group: Group | None) -> None:
        """Updates the instance's totals after a group's members may have changed."""
        if group is None or self._by_id.get(group.id) is not group:
            return
        counted = (len(group.members) + len(group.pending), group.size_bytes)
        if counted != group.counted:
            self._by_instance[split_internal(group.id)[0]].count(group, counted)

    def obtain(self, id: str, now_ms: int) -> Group:
        """Returns the group, which is created if it is unknown. Except for replays, call `has_room` first."""
        group = self._by_id.get(id)
        if group is None:
            group = self._by_id[id] = Group(id, now_ms, self.dropped_at)
            instance_id = split_internal(id)[0]
            instance_groups = self._by_instance.get(instance_id)
            if instance_groups is None:
                instance_groups = self._by_instance[instance_id] = _InstanceGroups()
            instance_groups.groups[id] = group
        return group

    def recorded_at(self, id: str) -> int:
        """Returns the log offset of the record on which replies about a group's members depend."""
        group = self._by_id.get(id)
        return self.dropped_at if group is None else group.recorded_at

    def committed_at(self, id: str) -> int:
        """Returns the log offset of the record on which replies about a group's offsets depend."""
        group = self._by_id.get(id)
        return self.dropped_at if group is None else group.committed_at

    def offsets_changed(self, id: str, offset: int) -> None:
        """Notes that the record or marker at a log offset changed a group's offsets, or ended the group."""
        group = self._by_id.get(id)
        if group is None:
            self.dropped_at = max(self.dropped_at, offset)
        else:
            group.committed_at = offset

    def drop(self, id: str) -> None:
        """Removes a group and sets it to state Dead for callers that still have a reference."""
        group = self._by_id.pop(id, None)
        if group is None:
            return
        self.dropped_at = max(self.dropped_at, group.recorded_at, group.committed_at)
        group.state = State.DEAD
        instance_id = split_internal(id)[0]
        instance_groups = self._by_instance[instance_id]
        instance_groups.count(group, (0, 0))
        del instance_groups.groups[id]
        if not instance_groups.groups:
            del self._by_instance[instance_id]
