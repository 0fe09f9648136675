"""Registry of the groups of one shard, by id and by instance."""

from __future__ import annotations

from collections.abc import Callable, Iterator

from brokers.contract import coordinator_limits
from brokers.engine.coordinators.groups.group import Group, GroupState
from brokers.engine.coordinators.led_shards import LedShards
from brokers.engine.coordinators.result import NO_RECORD
from brokers.engine.coordinators.settings import GroupSettings
from instances.naming import split_internal

# Kinds of usage that the shards count by instance; members include pending member ids.
GROUPS, MEMBERS, MEMBER_BYTES = 0, 1, 2


class GroupRegistry:
    """Groups of one shard, by internal id.

    `last_drop_offset` is the log offset of the last record that ended a group. `shards` are all shards that this broker
    leads, this one included. `current_settings` returns the settings in force, some of which operators change at run
    time.
    """

    __slots__ = ("_by_id", "_by_instance", "_current_settings", "last_drop_offset", "shards")

    def __init__(
        self, current_settings: Callable[[], GroupSettings], shards: LedShards[GroupRegistry] | None = None
    ) -> None:
        self._current_settings = current_settings
        self.shards: LedShards[GroupRegistry] = LedShards() if shards is None else shards
        self.shards.add(self)
        self.last_drop_offset = NO_RECORD
        self._by_id: dict[str, Group] = {}
        # Groups of each instance, by id.
        self._by_instance: dict[str | None, dict[str, Group]] = {}

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

    def groups_of_instance(self, instance_id: str) -> tuple[Group, ...]:
        return tuple(self._by_instance.get(instance_id, {}).values())

    def may_add_group(self, id: str) -> bool:
        """True if the instance that a group id belongs to may have one more group on this broker."""
        instance_id = split_internal(id)[0]
        if instance_id is None:
            return True
        return self.shards.remaining(instance_id, GROUPS, coordinator_limits.GROUPS_PER_INSTANCE_MAX) > 0

    def may_add_members(self, id: str, more_bytes: int, more_members: int = 0) -> bool:
        """True if the instance that a group id belongs to may have further members and bytes on this broker.

        `more_bytes` and `more_members` are added to those of all its groups on this broker.
        """
        instance_id = split_internal(id)[0]
        if instance_id is None:
            return True
        shards, limits = self.shards, coordinator_limits
        if more_members > 0:
            remaining = shards.remaining(instance_id, MEMBERS, limits.MEMBERS_PER_INSTANCE_MAX, limits.MEMBERS_FLOOR)
            if more_members > remaining:
                return False
        if more_bytes <= 0:
            return True
        return more_bytes <= shards.remaining(
            instance_id, MEMBER_BYTES, limits.MEMBER_BYTES_PER_INSTANCE_MAX, limits.MEMBER_BYTES_FLOOR
        )

    def update_usage(self, group: Group | None) -> None:
        """Updates the instance's totals after a group's members may have changed."""
        if group is None or self._by_id.get(group.id) is not group:
            return
        self._charge_usage_change(group, (len(group.members) + len(group.pending), group.size_bytes))

    def _charge_usage_change(self, group: Group, counted_usage: tuple[int, int], groups: int = 0) -> None:
        """Charges the instance for `groups` more groups, and for the change of this group's members and bytes."""
        members, size_bytes = group.counted_usage
        if groups or counted_usage != group.counted_usage:
            group.counted_usage = counted_usage
            instance_id = split_internal(group.id)[0]
            self.shards.charge(self, instance_id, groups, counted_usage[0] - members, counted_usage[1] - size_bytes)

    def get_or_create(self, id: str, now_ms: int) -> Group:
        """Returns the group, which is created if it is unknown. Except for replays, call `may_add_group` first."""
        group = self._by_id.get(id)
        if group is None:
            group = self._by_id[id] = Group(id, now_ms, self.last_drop_offset)
            self._by_instance.setdefault(split_internal(id)[0], {})[id] = group
            self._charge_usage_change(group, group.counted_usage, groups=1)
        return group

    def last_record_offset(self, id: str) -> int:
        """Returns the log offset of the record on which replies about a group's members depend."""
        group = self._by_id.get(id)
        return self.last_drop_offset if group is None else group.last_record_offset

    def last_commit_offset(self, id: str) -> int:
        """Returns the log offset of the record on which replies about a group's offsets depend."""
        group = self._by_id.get(id)
        return self.last_drop_offset if group is None else group.last_commit_offset

    def note_offsets_change(self, id: str, offset: int) -> None:
        """Notes that the record or marker at a log offset changed a group's offsets, or ended the group."""
        group = self._by_id.get(id)
        if group is None:
            self.last_drop_offset = max(self.last_drop_offset, offset)
        else:
            group.last_commit_offset = offset

    def drop(self, id: str) -> None:
        """Removes a group and sets it to state Dead for callers that still have a reference."""
        group = self._by_id.pop(id, None)
        if group is None:
            return
        self.last_drop_offset = max(self.last_drop_offset, group.last_record_offset, group.last_commit_offset)
        group.state = GroupState.DEAD
        instance_id = split_internal(id)[0]
        self._charge_usage_change(group, (0, 0), groups=-1)
        groups = self._by_instance[instance_id]
        del groups[id]
        if not groups:
            del self._by_instance[instance_id]
