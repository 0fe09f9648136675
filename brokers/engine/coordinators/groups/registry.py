"""Every group of one partition of the offsets topic, by its id and by its owner."""

from __future__ import annotations

from collections.abc import Iterator

from brokers.engine.coordinators.groups.group import Group, State
from brokers.engine.coordinators.groups.limits import GROUPS_PER_INSTANCE_MAX, MEMBER_BYTES_PER_INSTANCE_MAX
from brokers.engine.coordinators.result import NO_RECORD
from brokers.engine.coordinators.settings import GroupSettings
from instances.naming import split_internal


class GroupRegistry:
    """Ids are internal. `dropped_at` is the log offset of the last record after which some group was gone."""

    __slots__ = ("_by_id", "_by_instance", "dropped_at", "settings")

    def __init__(self, settings: GroupSettings) -> None:
        self.settings = settings
        self.dropped_at = NO_RECORD
        self._by_id: dict[str, Group] = {}
        self._by_instance: dict[str | None, dict[str, Group]] = {}

    def __iter__(self) -> Iterator[Group]:
        """A group may be dropped meanwhile."""
        return iter(tuple(self._by_id.values()))

    def __len__(self) -> int:
        return len(self._by_id)

    def get(self, id: str) -> Group | None:
        return self._by_id.get(id)

    def of_instance(self, instance_id: str) -> tuple[Group, ...]:
        return tuple(self._by_instance.get(instance_id, {}).values())

    def has_room(self, id: str) -> bool:
        """Whether the owner of this id may have one more group here."""
        instance_id = split_internal(id)[0]
        return instance_id is None or len(self._by_instance.get(instance_id, ())) < GROUPS_PER_INSTANCE_MAX

    def has_memory(self, id: str, more_bytes: int) -> bool:
        """Whether the members of all groups that the owner of this id has here may take so much more."""
        instance_id = split_internal(id)[0]
        if instance_id is None or more_bytes <= 0:
            return True
        taken_bytes = sum(group.size_bytes for group in self._by_instance.get(instance_id, {}).values())
        return taken_bytes + more_bytes <= MEMBER_BYTES_PER_INSTANCE_MAX

    def obtain(self, id: str, now_ms: int) -> Group:
        """The group, made if there is none. Ask `has_room` first, except when a record says that it is there."""
        group = self._by_id.get(id)
        if group is None:
            group = self._by_id[id] = Group(id, now_ms, self.dropped_at)
            self._by_instance.setdefault(split_internal(id)[0], {})[id] = group
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
        siblings = self._by_instance[instance_id]
        del siblings[id]
        if not siblings:
            del self._by_instance[instance_id]
