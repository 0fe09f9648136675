"""Users written by this broker that its image does not show yet.

They count against the instance's limits, because otherwise one request with many would see free capacity for each.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Final

from brokers.contract.instance_limits import USER_BYTES_MAX, USERS_BYTES_MAX
from brokers.contract.users import USERS_MAX, UserDocument
from brokers.engine.cluster import errors
from brokers.engine.cluster.user_plans import stored_bytes_of

# Another broker's write may have replaced ours before the image showed it.
IN_FLIGHT_MS_MAX: Final = 30_000

Users = Mapping[str, UserDocument]


class _InstanceUsers:
    """Sizes of an instance's users in one image, updated by differences, and the writes that it does not show yet."""

    __slots__ = ("bytes_delta", "count_delta", "oldest_ms", "pending_writes", "sizes", "total_bytes", "users")

    def __init__(self) -> None:
        self.users: Users = {}
        # Size in bytes by node name.
        self.sizes: dict[str, int] = {}
        self.total_bytes = 0
        # By node name: (document written, size in bytes, time).
        self.pending_writes: dict[str, tuple[UserDocument | None, int, int]] = {}
        self.oldest_ms = 0
        # Additional users and bytes compared with the image.
        self.count_delta = 0
        self.bytes_delta = 0

    def update(self, users: Users, now_ms: int) -> None:
        """Applies the users of the current image, and drops writes that it shows or that are too old."""
        is_same = users is self.users
        if is_same and (not self.pending_writes or now_ms - self.oldest_ms < IN_FLIGHT_MS_MAX):
            return
        if not is_same:
            self._apply_image(users)
        pending_writes, self.pending_writes = self.pending_writes, {}
        self.count_delta = self.bytes_delta = 0
        for node, (document, size_bytes, at_ms) in pending_writes.items():
            if users.get(node) != document and now_ms - at_ms < IN_FLIGHT_MS_MAX:
                self.record(node, document, size_bytes, at_ms)

    def record(self, node: str, document: UserDocument | None, size_bytes: int, at_ms: int) -> None:
        """Records a write of a user, None for a removal."""
        before = self.pending_writes.get(node)
        if before is not None:
            self._count(node, before[0], before[1], -1)
        if not self.pending_writes:
            self.oldest_ms = at_ms
        self.pending_writes[node] = document, size_bytes, at_ms
        self._count(node, document, size_bytes, 1)

    def _count(self, node: str, document: UserDocument | None, size_bytes: int, sign: int) -> None:
        self.count_delta += sign * ((document is not None) - (node in self.users))
        self.bytes_delta += sign * (size_bytes - self.sizes.get(node, 0))

    def _apply_image(self, users: Users) -> None:
        before = self.users
        for node, document in users.items():
            if before.get(node) is not document:
                self._set_size(node, stored_bytes_of(node, document))
        for node in [node for node in self.sizes if node not in users]:
            self._set_size(node, 0)
        self.users = users

    def _set_size(self, node: str, size_bytes: int) -> None:
        self.total_bytes += size_bytes - self.sizes.get(node, 0)
        if size_bytes:
            self.sizes[node] = size_bytes
        else:
            del self.sizes[node]


class InFlightUsers:
    """Written users by instance and node name; `now_ms` is approximately monotonic."""

    def __init__(self, now_ms: Callable[[], int]) -> None:
        self._now_ms = now_ms
        self._by_instance: dict[str, _InstanceUsers] = {}

    def check(
        self, users: Users, instance_id: str, node: str, before: UserDocument | None, after: UserDocument | None
    ) -> None:
        """Checks the limits of an instance; `users` are those of the image.

        Raises:
            errors.PolicyViolation: the instance has the maximum number of users, or they would be too large.
        """
        stored = self._by_instance.setdefault(instance_id, _InstanceUsers())
        stored.update(users, self._now_ms())
        if after is None:
            return
        size_bytes = stored_bytes_of(node, after)
        if before is None and len(users) + stored.count_delta >= USERS_MAX:
            raise errors.PolicyViolation(f"The instance has {USERS_MAX} users already; remove some first.")
        added_bytes = size_bytes - (0 if before is None else stored_bytes_of(node, before))
        is_over_total = stored.total_bytes + stored.bytes_delta + added_bytes > USERS_BYTES_MAX
        if size_bytes > USER_BYTES_MAX or (added_bytes > 0 and is_over_total):
            raise errors.PolicyViolation(
                f"A user may weigh {USER_BYTES_MAX} bytes and all users of the instance {USERS_BYTES_MAX}; remove "
                "some, or their second secrets, first."
            )

    def record(self, instance_id: str, node: str, after: UserDocument | None) -> None:
        """Records a user that was written and announced."""
        size_bytes = 0 if after is None else stored_bytes_of(node, after)
        self._by_instance.setdefault(instance_id, _InstanceUsers()).record(node, after, size_bytes, self._now_ms())

    def forget(self, instance_ids: list[str]) -> None:
        """Forgets deleted instances."""
        for instance_id in instance_ids:
            self._by_instance.pop(instance_id, None)
