"""What to ask one leader for next, and when to try again what failed (REP-6, WIRE-30). Pure: the clock is handed in,
nothing is sent.

The leader keeps a fetch session if it can: then a request names only what changed since the last one, so that a round
costs by the traffic and not by the partitions held. Without a session every request names everything that is due.
"""

from __future__ import annotations

from collections.abc import Callable
from heapq import heappop, heappush
from typing import Final, NamedTuple

from brokers.engine.partitions.partition import Partition
from brokers.engine.protocol.fast_codec_replica_fetch import ForgottenPartition, WantedPartition

RETRY_MS_FIRST: Final = 25
# `replica.fetch.backoff.ms`
RETRY_MS_MAX: Final = 1_000

# `replica.fetch.max.bytes`
PARTITION_BYTES_MAX: Final = 1_048_576

NO_SESSION: Final = 0
FIRST_EPOCH: Final = 0
_EPOCH_MAX: Final = 2**31 - 1
UNKNOWN: Final = -1

Key = tuple[bytes, int]


def retry_delay_ms(failures: int) -> int:
    """How long to wait after so many failures in a row: soon at first, because a new leader may be a moment behind."""
    return min(RETRY_MS_FIRST << min(failures - 1, 16), RETRY_MS_MAX)


def next_epoch(session_epoch: int) -> int:
    """Session epochs wrap to 1; 0 would ask for a new session."""
    return 1 if session_epoch == _EPOCH_MAX else session_epoch + 1


class Followed:
    """One partition under the leader epoch that its fields say. `asked` is how the leader last heard of it,
    `first_round` where it first did in this epoch.
    """

    __slots__ = (
        "asked",
        "error",
        "failures",
        "first_round",
        "heard_ms",
        "key",
        "leader_high_watermark",
        "partition",
        "retry_ms",
    )

    def __init__(self, partition: Partition) -> None:
        self.partition = partition
        self.key: Key = (partition.topic_id, partition.index)
        self.asked: WantedPartition | None = None
        self.first_round = 0
        self.leader_high_watermark = UNKNOWN
        self.heard_ms = 0
        self.error = ""
        self.failures = 0
        # Not asked for before this time, 0 when nothing holds it back.
        self.retry_ms = 0

    @property
    def lag(self) -> int:
        """Records behind the leader's high watermark, UNKNOWN before the first answer."""
        if self.leader_high_watermark == UNKNOWN:
            return UNKNOWN
        return max(0, self.leader_high_watermark - self.partition.log_end_offset)

    def wanted(self, bytes_max: int, round_number: int) -> WantedPartition:
        partition = self.partition
        log = partition.log
        if not self.was_asked_in_this_epoch():
            self.first_round = round_number
        self.asked = (
            partition.topic_id,
            partition.index,
            partition.leader_epoch,
            log.log_end_offset,
            log.epochs.latest,
            # What a crash would undo is not deleted yet (LOG-46).
            log.kept_start_offset,
            bytes_max,
        )
        return self.asked

    def was_asked_in_this_epoch(self) -> bool:
        return self.asked is not None and self.asked[2] == self.partition.leader_epoch

    def is_answered_by(self, round_number: int) -> bool:
        """An answer that was under way while the leader changed is of no use, also if it is the same broker's again and
        was asked anew meanwhile.
        """
        return self.was_asked_in_this_epoch() and round_number >= self.first_round


class Round(NamedTuple):
    """One request."""

    session_id: int
    session_epoch: int
    lines: list[WantedPartition]
    forgotten: list[ForgottenPartition]


class FetchPlan:
    """Of one leader; `rounds` counts the requests. Invariant: what is `followed` is either active or waits for its
    time.
    """

    def __init__(
        self,
        held_back_ms: Callable[[Followed], int] = lambda followed: 0,
        bytes_max: Callable[[Followed], int] = lambda followed: PARTITION_BYTES_MAX,
    ) -> None:
        """`held_back_ms` says for how long one is not to be asked for although its time has come, `bytes_max` how much
        to ask for of one that may be throttled (QUO-61).
        """
        self.followed: dict[Key, Followed] = {}
        self.rounds = 0
        self._held_back_ms = held_back_ms
        self._bytes_max = bytes_max
        self._active: dict[Key, Followed] = {}
        self._retries: list[tuple[int, int, Followed]] = []
        self._retries_made = 0
        self._session_id = NO_SESSION
        self._session_epoch = FIRST_EPOCH
        # What the leader's session holds, what of it to say anew, and what to take out of it.
        self._held: set[Key] = set()
        self._changed: dict[Key, Followed] = {}
        self._gone: set[Key] = set()
        self._has_news = False

    def __len__(self) -> int:
        return len(self.followed)

    @property
    def has_session(self) -> bool:
        return self._session_id != NO_SESSION

    # -- who -----------------------------------------------------------------------------------------------------------

    def follow(self, partition: Partition) -> bool:
        """Whether it is worth telling the leader now, rather than with the next round."""
        key = (partition.topic_id, partition.index)
        known = self.followed.get(key)
        if known is None or known.partition is not partition:
            known = self.followed[key] = Followed(partition)
        elif known.failures == 0 and known.was_asked_in_this_epoch():
            return False
        self.resume(known)
        return True

    def unfollow(self, key: Key) -> None:
        if self.followed.pop(key, None) is not None:
            self._deactivate(key)

    def find(self, topic_id: bytes, index: int, round_number: int) -> Followed | None:
        """The followed partition that a line in the answer to that round is for, None if the line comes too late."""
        followed = self._active.get((topic_id, index))
        return followed if followed is not None and followed.is_answered_by(round_number) else None

    def _activate(self, followed: Followed) -> None:
        key = followed.key
        self._active[key] = followed
        self._changed[key] = followed
        self._gone.discard(key)
        self._has_news = True

    def _deactivate(self, key: Key) -> None:
        self._active.pop(key, None)
        self._changed.pop(key, None)
        if key in self._held:
            self._gone.add(key)

    # -- asking --------------------------------------------------------------------------------------------------------

    def next_round(self, now_ms: int) -> Round | None:
        """What to send now; None if there is nothing to ask for before `due_ms`."""
        if self._retries:
            self._retry(now_ms)
        if not self._active:
            return None
        self._has_news = False
        self.rounds += 1
        if self._session_id == NO_SESSION:
            lines = [self._wanted(followed) for followed in self._active.values()]
            self._held = set(self._active)
            self._changed.clear()
            self._gone.clear()
            return Round(NO_SESSION, FIRST_EPOCH, lines, [])
        lines = []
        if self._changed:
            lines = [self._wanted(followed) for followed in self._changed.values()]
            self._held.update(self._changed)
            self._changed = {}
        forgotten: list[ForgottenPartition] = []
        if self._gone:
            forgotten = sorted(self._gone)
            self._held -= self._gone
            self._gone = set()
        epoch = self._session_epoch
        self._session_epoch = next_epoch(epoch)
        return Round(self._session_id, epoch, lines, forgotten)

    def _wanted(self, followed: Followed) -> WantedPartition:
        may_be_throttled = followed.partition.config.follower_throttled is not None
        return followed.wanted(self._bytes_max(followed) if may_be_throttled else PARTITION_BYTES_MAX, self.rounds)

    def has_news(self, now_ms: int) -> bool:
        """Whether something is to be asked for that no request under way asks for. A request that is sent for it names
        something: the leader takes one that does not for sent when nothing else was under way.
        """
        if self._retries:
            self._retry(now_ms)
        return self._has_news and bool(self._changed or self._gone)

    @property
    def is_holding_back(self) -> bool:
        return bool(self._retries)

    def due_ms(self) -> int | None:
        """When something that waits may be asked for again."""
        retries = self._retries
        while retries and not self._is_waiting(retries[0]):
            heappop(retries)
        return retries[0][0] if retries else None

    def _is_waiting(self, entry: tuple[int, int, Followed]) -> bool:
        retry_ms, _, followed = entry
        return followed.retry_ms == retry_ms and self.followed.get(followed.key) is followed

    def _retry(self, now_ms: int) -> None:
        """Takes up again whatever waited until now."""
        retries = self._retries
        while retries and retries[0][0] <= now_ms:
            entry = heappop(retries)
            if not self._is_waiting(entry):
                continue
            followed = entry[2]
            delay_ms = self._held_back_ms(followed)
            if delay_ms > 0:
                self.hold_back(followed, now_ms + delay_ms)
            else:
                followed.retry_ms = 0
                self._activate(followed)

    # -- answers -------------------------------------------------------------------------------------------------------

    def session_opened(self, session_id: int) -> None:
        """The answer to a full request gave a session, or (NO_SESSION) none."""
        if session_id != self._session_id:
            self._session_id = session_id
            self._session_epoch = next_epoch(FIRST_EPOCH)

    def session_lost(self) -> None:
        """The connection is gone, or the leader forgot the session: the next request says everything."""
        self._session_id = NO_SESSION
        self._session_epoch = FIRST_EPOCH
        self._held.clear()
        self._gone.clear()

    def moved(self, followed: Followed) -> None:
        """Its log moved on: the next request says so. Whoever was served goes to the end of a full request."""
        followed.failures = 0
        followed.error = ""
        key = followed.key
        if self._session_id == NO_SESSION:
            self._active.pop(key, None)
            self._active[key] = followed
        else:
            self._changed[key] = followed
            self._has_news = True

    def tell(self, followed: Followed) -> None:
        """The leader is to hear of it before anything comes of it: a request under way is overtaken."""
        if self._active.get(followed.key) is followed:
            self._activate(followed)

    def resume(self, followed: Followed) -> None:
        """What held it back is mended."""
        followed.failures = followed.retry_ms = 0
        followed.error = ""
        self._activate(followed)

    def failed(self, followed: Followed, error: str, now_ms: int) -> None:
        """It is left out of the next requests, for longer each time (REP-6)."""
        followed.failures += 1
        followed.error = error
        self.hold_back(followed, now_ms + retry_delay_ms(followed.failures))

    def hold_back(self, followed: Followed, until_ms: int) -> None:
        """It is left out until then (a failure, a throttle)."""
        self._deactivate(followed.key)
        followed.retry_ms = until_ms
        self._retries_made += 1
        heappush(self._retries, (until_ms, self._retries_made, followed))
