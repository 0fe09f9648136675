"""Users written by this broker that its image does not show yet.

They count against the instance's limits, because otherwise one request with many would see free capacity for each.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Final

from brokers.contract.instance_limits import USER_BYTES_MAX, USERS_BYTES_MAX
from brokers.contract.users import USERS_MAX, UserDocument
from brokers.engine.cluster import errors
from brokers.engine.cluster.user_plans import weight_of

# Another broker's write may have replaced ours before the image showed it.
IN_FLIGHT_MS_MAX: Final = 30_000

Users = Mapping[str, UserDocument]


class _OfInstance:
    """Total size of an instance's users in one image, updated by differences, and of the writes that this image does
    not show yet.
    """

    __slots__ = ("count_ahead", "oldest_ms", "total", "users", "weight_ahead", "weights", "written")

    def __init__(self) -> None:
        self.users: Users = {}
        self.weights: dict[str, int] = {}
        self.total = 0
        # By node name: (document written, size in bytes, time).
        self.written: dict[str, tuple[UserDocument | None, int, int]] = {}
        self.oldest_ms = 0
        # Additional users and bytes compared with the image.
        self.count_ahead = 0
        self.weight_ahead = 0

    def update(self, users: Users, now_ms: int) -> None:
        """Applies the users of the current image, and drops writes that it shows or that are too old."""
        is_same = users is self.users
        if is_same and (not self.written or now_ms - self.oldest_ms < IN_FLIGHT_MS_MAX):
            return
        if not is_same:
            self._show(users)
        written, self.written = self.written, {}
        self.count_ahead = self.weight_ahead = 0
        for node, (document, weight, at_ms) in written.items():
            if users.get(node) != document and now_ms - at_ms < IN_FLIGHT_MS_MAX:
                self.note(node, document, weight, at_ms)

    def note(self, node: str, document: UserDocument | None, weight: int, at_ms: int) -> None:
        """Records a write of a user, None for a removal; `weight` is its size in bytes."""
        before = self.written.get(node)
        if before is not None:
            self._count(node, before[0], before[1], -1)
        if not self.written:
            self.oldest_ms = at_ms
        self.written[node] = document, weight, at_ms
        self._count(node, document, weight, 1)

    def _count(self, node: str, document: UserDocument | None, weight: int, sign: int) -> None:
        self.count_ahead += sign * ((document is not None) - (node in self.users))
        self.weight_ahead += sign * (weight - self.weights.get(node, 0))

    def _show(self, users: Users) -> None:
        before = self.users
        for node, document in users.items():
            if before.get(node) is not document:
                self._weigh(node, weight_of(node, document))
        for node in [node for node in self.weights if node not in users]:
            self._weigh(node, 0)
        self.users = users

    def _weigh(self, node: str, weight: int) -> None:
        self.total += weight - self.weights.get(node, 0)
        if weight:
            self.weights[node] = weight
        else:
            del self.weights[node]


class InFlightUsers:
    """Written users by instance and node name; `now_ms` is approximately monotonic."""

    def __init__(self, now_ms: Callable[[], int]) -> None:
        self._now_ms = now_ms
        self._of: dict[str, _OfInstance] = {}

    def check(
        self, users: Users, instance_id: str, node: str, before: UserDocument | None, after: UserDocument | None
    ) -> None:
        """Checks the limits of an instance; `users` are those of the image.

        Raises:
            errors.PolicyViolation: the instance has the maximum number of users, or they would be too large.
        """
        of = self._of.setdefault(instance_id, _OfInstance())
        of.update(users, self._now_ms())
        if after is None:
            return
        weight = weight_of(node, after)
        if before is None and len(users) + of.count_ahead >= USERS_MAX:
            raise errors.PolicyViolation(f"The instance has {USERS_MAX} users already; remove some first.")
        added = weight - (0 if before is None else weight_of(node, before))
        if weight > USER_BYTES_MAX or (added > 0 and of.total + of.weight_ahead + added > USERS_BYTES_MAX):
            raise errors.PolicyViolation(
                f"A user may weigh {USER_BYTES_MAX} bytes and all users of the instance {USERS_BYTES_MAX}; remove "
                "some, or their second secrets, first."
            )

    def note(self, instance_id: str, node: str, after: UserDocument | None) -> None:
        """Records a user that was written and announced."""
        weight = 0 if after is None else weight_of(node, after)
        self._of.setdefault(instance_id, _OfInstance()).note(node, after, weight, self._now_ms())

    def forget(self, instance_ids: list[str]) -> None:
        """Forgets deleted instances."""
        for instance_id in instance_ids:
            self._of.pop(instance_id, None)
