"""Inputs of the shares of an instance's limits: the number of leader partitions of each broker, and the policy."""

from __future__ import annotations

from collections.abc import Mapping
from functools import lru_cache
from typing import Final, NamedTuple
from zlib import crc32

from quotas.allocation import allocate
from quotas.policies import POLICIES

STATIC: Final = "static"
# Each broker has its static part, and all brokers share the pool of the whole limit.
POOLED: Final = "adaptive"


class Layout(NamedTuple):
    """Distribution of an instance's leader partitions over brokers, and the policy of its shares.

    `leaders` has the number of leader partitions of each live broker that leads any. `checksum` covers these, the
    epochs of the brokers, and the number of leader changes: after a restart or a leader change all brokers begin with
    their static shares. With `is_shared`, client quotas hold over all brokers together.
    """

    leaders: Mapping[int, int]
    checksum: int
    policy: str = STATIC
    is_shared: bool = True

    @classmethod
    def from_leaders(
        cls,
        leaders: Mapping[int, int],
        broker_epochs: Mapping[int, int] | None = None,
        policy: str = STATIC,
        *,
        moves: int = 0,
        is_shared: bool = True,
    ) -> Layout:
        """Returns the layout for these numbers of leader partitions by broker; `moves` counts the leader changes."""
        leader_counts = {broker: count for broker, count in sorted(leaders.items()) if count}
        epochs = broker_epochs or {}
        text = "".join(f"{broker}:{epochs.get(broker, -1)}:{count};" for broker, count in leader_counts.items())
        return cls(
            leader_counts, crc32(f"{moves};{text}".encode()), policy if policy in POLICIES else STATIC, is_shared
        )

    @property
    def effective_policy(self) -> str:
        """The policy in force; `static` if a single broker leads all partitions."""
        return self.policy if len(self.leaders) > 1 else STATIC

    def basis(self, limit_bps: int) -> int:
        """Returns the checksum of all inputs of a share of this limit. It differs between brokers with different views
        of the cluster.
        """
        return crc32(f"{limit_bps}:{self.policy}".encode(), self.checksum)

    def static_bps(self, limit_bps: int) -> dict[int, int]:
        """Returns the static part of each broker that leads any partition (CKA-27). The parts add up to the limit."""
        shares = allocate(limit_bps, list(self.leaders.values()), [0] * len(self.leaders), "static")
        return dict(zip(self.leaders, shares, strict=True))


def static_part(limit_per_s: float, layout: Layout, broker_id: int) -> float:
    """Returns this broker's part of a client quota by partitions, which is above 0 if the limit is.

    A broker that leads no partition gets an equal part, as if it were one more leader.
    """
    leaders = layout.leaders
    if not leaders or list(leaders) == [broker_id]:
        return limit_per_s
    if broker_id not in leaders:
        return limit_per_s / (len(leaders) + 1)
    if limit_per_s < len(leaders):
        return limit_per_s * leaders[broker_id] / sum(leaders.values())
    return float(_whole_part(int(limit_per_s), tuple(leaders.items()), broker_id))


@lru_cache(maxsize=1_000)
def _whole_part(limit_bps: int, leaders: tuple[tuple[int, int], ...], broker_id: int) -> int:
    shares = allocate(limit_bps, [count for _, count in leaders], [0] * len(leaders), "static")
    return shares[[broker for broker, _ in leaders].index(broker_id)]
