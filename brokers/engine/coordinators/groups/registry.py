"""Every group of one partition of the offsets topic, by its id and by its owner."""

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
    """`members` has ids that were given out as well."""

    groups: int
    members: int
    member_bytes: int


NOTHING: Final = GroupUsage(0, 0, 0)


class _InstanceGroups:
    """Those of one instance, with what their members are together."""

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
    """Groups of one shard, by internal id. `dropped_at` is the log offset of the last record after which some group was
    gone. `shards` are those that this broker leads, this one among them. `current_settings` returns the settings in
    force: operators change some of them while the broker runs.
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
        """A group may be dropped meanwhile."""
        return iter(tuple(self._by_id.values()))

    def __len__(self) -> int:
        return len(self._by_id)

    def get(self, id: str) -> Group | None:
        return self._by_id.get(id)

    def of_instance(self, instance_id: str) -> tuple[Group, ...]:
        held = self._by_instance.get(instance_id)
        return () if held is None else tuple(held.groups.values())

    def has_room(self, id: str) -> bool:
        """Whether the owner of this id may have one more group on this broker."""
        instance_id = split_internal(id)[0]
        if instance_id is None:
            return True
        groups = self.shards.total(lambda shard: shard.usage(instance_id).groups)
        return groups < self.shards.share_of(coordinator_limits.GROUPS_PER_INSTANCE_MAX)

    def has_memory(self, id: str, more_bytes: int, more_members: int = 0) -> bool:
        """Whether the members of all groups that the owner of this id has on this broker may be so many more, and take
        so much more.
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
        """What an instance has in this shard."""
        held = self._by_instance.get(instance_id)
        return NOTHING if held is None else GroupUsage(len(held.groups), held.members, held.member_bytes)

    def recount(self, group: Group | None) -> None:
        """Call after whatever may have changed its members."""
        if group is None or self._by_id.get(group.id) is not group:
            return
        counted = (len(group.members) + len(group.pending), group.size_bytes)
        if counted != group.counted:
            self._by_instance[split_internal(group.id)[0]].count(group, counted)

    def obtain(self, id: str, now_ms: int) -> Group:
        """The group, made if there is none. Ask `has_room` first, except when a record says that it is there."""
        group = self._by_id.get(id)
        if group is None:
            group = self._by_id[id] = Group(id, now_ms, self.dropped_at)
            instance_id = split_internal(id)[0]
            held = self._by_instance.get(instance_id)
            if held is None:
                held = self._by_instance[instance_id] = _InstanceGroups()
            held.groups[id] = group
        return group

    def recorded_at(self, id: str) -> int:
        """The log offset of what the answer to who is in this group depends on."""
        group = self._by_id.get(id)
        return self.dropped_at if group is None else group.recorded_at

    def committed_at(self, id: str) -> int:
        """The same of what it has committed."""
        group = self._by_id.get(id)
        return self.dropped_at if group is None else group.committed_at

    def offsets_changed(self, id: str, offset: int) -> None:
        """By the record or marker at this log offset, which may have been the end of the group."""
        group = self._by_id.get(id)
        if group is None:
            self.dropped_at = max(self.dropped_at, offset)
        else:
            group.committed_at = offset

    def drop(self, id: str) -> None:
        """It is gone: who still holds it sees it Dead."""
        group = self._by_id.pop(id, None)
        if group is None:
            return
        self.dropped_at = max(self.dropped_at, group.recorded_at, group.committed_at)
        group.state = State.DEAD
        instance_id = split_internal(id)[0]
        held = self._by_instance[instance_id]
        held.count(group, (0, 0))
        del held.groups[id]
        if not held.groups:
            del self._by_instance[instance_id]
