"""What the shares of an instance's limits are made of: who leads how many of its partitions, and by which policy."""

from __future__ import annotations

from collections.abc import Mapping
from functools import lru_cache
from typing import Final, NamedTuple
from zlib import crc32

from quotas.allocation import allocate
from quotas.policies import POLICIES

STATIC: Final = "static"
# Each broker has its static part, and all of them together the whole limit.
POOLED: Final = "adaptive"


class Layout(NamedTuple):
    """`leaders` counts the leader partitions of each live broker that has any. `checksum` is of these, of the epochs of
    those brokers, and of how often partitions changed their leader: who was started again, or leads again, begins with
    its static share, and so do all others. `is_shared`: client quotas hold over all brokers together.
    """

    leaders: Mapping[int, int]
    checksum: int
    policy: str = STATIC
    is_shared: bool = True

    @classmethod
    def of(
        cls,
        leaders: Mapping[int, int],
        broker_epochs: Mapping[int, int] | None = None,
        policy: str = STATIC,
        *,
        moves: int = 0,
        is_shared: bool = True,
    ) -> Layout:
        counted = {broker: count for broker, count in sorted(leaders.items()) if count}
        epochs = broker_epochs or {}
        lines = "".join(f"{broker}:{epochs.get(broker, -1)}:{count};" for broker, count in counted.items())
        return cls(counted, crc32(f"{moves};{lines}".encode()), policy if policy in POLICIES else STATIC, is_shared)

    @property
    def effective_policy(self) -> str:
        """What one broker leads all of is shared with nobody."""
        return self.policy if len(self.leaders) > 1 else STATIC

    def basis(self, limit_bps: int) -> int:
        """Names what a share of this limit is made of. Brokers that see the cluster differently have different ones."""
        return crc32(f"{limit_bps}:{self.policy}".encode(), self.checksum)

    def static_bps(self, limit_bps: int) -> dict[int, int]:
        """CKA-27: the parts by partitions, of each broker that leads any. Sums up to the limit."""
        shares = allocate(limit_bps, list(self.leaders.values()), [0] * len(self.leaders), "static")
        return dict(zip(self.leaders, shares, strict=True))


def static_part(limit_per_s: float, layout: Layout, broker_id: int) -> float:
    """This broker's part of a client quota, by partitions: something wherever the limit is something. A broker that
    leads nothing counts as one more that does.
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
