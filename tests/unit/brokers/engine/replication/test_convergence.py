"""Three replicas through elections, delayed images, restarts and changing ISRs: no committed record is lost, and common
parts of logs are identical (REP-5, REP-17 to REP-20; see KIP-101 and KIP-279).
"""

from __future__ import annotations

import os
import tempfile
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from brokers.engine.cluster.image import BrokerInfo
from brokers.engine.partitions.partition import LOG_END, Partition
from brokers.engine.partitions.progress import may_join
from brokers.engine.partitions.role import PartitionRole
from brokers.engine.partitions.table import PartitionTable, StorageSettings
from brokers.engine.protocol import codec
from brokers.engine.protocol.apis import ApiKey
from brokers.engine.protocol.errors import ErrorCode
from brokers.engine.protocol.fast_codec_fetch import decode_fetch
from brokers.engine.protocol.headers import decode_request_header, encode_response_frame
from brokers.engine.records.builder import Record, build_batch
from brokers.engine.replication.fetchers import Fetchers
from brokers.engine.replication.interfaces import LinkOwner
from tests.testkit import depth

from .stepped_world import NOW_MS, TOPIC_ID, SteppedClock, StepTimer, broker_info, fetched, line, write_starts

BROKERS = (1, 2, 3)
EXAMPLES = depth.number_from("PENSTOCK_CONVERGENCE_EXAMPLES", short=8, long=25)
# More rounds than any history needs to converge: each can remove one epoch.
ROUNDS_MAX = 60
ALL = 1 << 30


@dataclass(frozen=True)
class Image:
    leader: int
    epoch: int
    isr: tuple[int, ...]


class MemoryLink:
    """Keeps one request until it is delivered."""

    def __init__(self, broker: BrokerInfo, owner: LinkOwner) -> None:
        self.target = broker.id
        self.owner = owner
        self.request: bytes | None = None
        self.is_up = self.is_closed = False

    def send(self, frame: bytes) -> None:
        assert self.request is None, "one request at a time without a session"
        self.request = frame

    def trim(self) -> None: ...

    def close(self) -> None:
        self.is_closed = True


class Replica:
    """One broker: a table on disk, its fetchers and links."""

    def __init__(self, broker_id: int, directory: Path) -> None:
        self.id = broker_id
        self.directory = directory
        self.clock = SteppedClock()
        self.timers: list[StepTimer] = []
        self.links: list[MemoryLink] = []
        self.image: Image | None = None
        self.open()

    def open(self) -> None:
        roots = (self.directory,)
        self.table = PartitionTable(StorageSettings(roots=roots, broker_id=self.id, cluster_id="c"))
        self.table.recover(NOW_MS)
        self.fetchers = Fetchers(
            broker_id=self.id,
            broker_epoch=lambda: 1,
            table=self.table,
            clock=self.clock,
            connect=self._connect,
            call_later=self._call_later,
            persist_log_start_offsets=lambda root, then: write_starts(self.table, then),
        )
        self.fetchers.on_brokers({broker: broker_info(broker) for broker in BROKERS})

    def close(self) -> None:
        self.fetchers.close()
        self.table.close()

    def _connect(self, broker: BrokerInfo, owner: LinkOwner) -> MemoryLink:
        self.links.append(MemoryLink(broker, owner))
        return self.links[-1]

    def _call_later(self, delay_ms: int, call: Callable[[], object]) -> StepTimer:
        self.timers.append(StepTimer(0, call))
        return self.timers[-1]

    @property
    def partition(self) -> Partition:
        result = self.table.get("t", 0)
        assert result is not None
        return result

    def learn(self, image: Image) -> None:
        self.image = image
        role, now_ms = PartitionRole(BROKERS, image.isr, image.leader), self.clock.now_ms()
        if image.leader == self.id:
            self.fetchers.unfollow("t", 0)
            self.table.become_leader("t", 0, TOPIC_ID, image.epoch, {}, now_ms=now_ms, role=role)
        else:
            held = self.table.become_follower("t", 0, TOPIC_ID, image.epoch, {}, now_ms=now_ms, role=role)
            self.fetchers.follow(held)

    def pass_time(self) -> None:
        """Calls all timers."""
        self.clock.passed_ms += 2_000
        due, self.timers = self.timers, []
        for timer in due:
            if not timer.is_over:
                timer.is_over = True
                timer.call()

    def data(self, until: int = ALL) -> bytes:
        """Returns the bytes of the log below an offset."""
        log = self.partition.log
        result = log.read(log.log_start_offset, ALL, min(until, log.log_end_offset), min_one_batch=True)
        if result is None:
            return b""
        data = os.pread(result.fd, result.length, result.position)
        result.release()
        return data


class Convergence(RuleBasedStateMachine):
    """An image names the leader; each replica acts on the last one it got."""

    def __init__(self) -> None:
        super().__init__()
        self._scratch = tempfile.TemporaryDirectory(prefix="convergence-")
        self.replicas = {broker: Replica(broker, Path(self._scratch.name, str(broker))) for broker in BROKERS}
        self.image = Image(1, 0, BROKERS)
        self.produced = 0
        self.committed = b""

    def teardown(self) -> None:
        for replica in self.replicas.values():
            replica.close()
        self._scratch.cleanup()

    @initialize()
    def begin(self) -> None:
        for replica in self.replicas.values():
            replica.learn(self.image)

    # -- steps ------------------------------------------------------------------------------------------------------

    @rule(broker=st.sampled_from(BROKERS), count=st.integers(1, 3))
    def produce(self, broker: int, count: int) -> None:
        """Produces, also to a leader that does not know yet that it was replaced."""
        partition = self.replicas[broker].partition
        if partition.is_leader:
            self.produced += 1
            records = [Record(NOW_MS, None, b"%d of %d" % (number, self.produced)) for number in range(count)]
            result = partition.append(memoryview(build_batch(records)), NOW_MS, acks=1, produce_version=9)
            assert result.error_code == 0

    @rule(broker=st.sampled_from(BROKERS), rounds=st.integers(1, 3))
    def fetch(self, broker: int, rounds: int) -> None:
        for _ in range(rounds):
            self._deliver(self.replicas[broker])

    @rule(broker=st.sampled_from(BROKERS))
    def elect(self, broker: int) -> None:
        """Elects an in-sync replica; the new leader gets the image first, the others later."""
        if broker in self.image.isr and broker != self.image.leader:
            self.image = Image(broker, self.image.epoch + 1, self.image.isr)
            self.replicas[broker].learn(self.image)

    @rule(broker=st.sampled_from(BROKERS))
    def learn(self, broker: int) -> None:
        self.replicas[broker].learn(self.image)

    @rule(broker=st.sampled_from(BROKERS))
    def fall_out_of_sync(self, broker: int) -> None:
        if broker in self.image.isr and broker != self.image.leader:
            self._change_isr(tuple(member for member in self.image.isr if member != broker))

    @rule(broker=st.sampled_from(BROKERS))
    def join(self, broker: int) -> None:
        """Lets the leader add a follower to the ISR if it may by its own image (REP-23, REP-24)."""
        leading = self.replicas[self.image.leader]
        leadership = leading.partition.leadership
        if broker in self.image.isr or leading.image != self.image or leadership is None:
            return
        follower = leadership.followers[broker]
        if may_join(follower, leading.partition.high_watermark, leading.partition.epoch_start_offset):
            self._change_isr((*self.image.isr, broker))

    def _change_isr(self, isr: tuple[int, ...]) -> None:
        self.image = Image(self.image.leader, self.image.epoch, isr)
        self.replicas[self.image.leader].learn(self.image)

    @precondition(lambda self: len(self.image.isr) > 0)
    @rule(broker=st.sampled_from(BROKERS), forgets=st.booleans())
    def restart(self, broker: int, forgets: bool) -> None:
        """Restarts a follower, which may have forgotten its high watermark (KIP-101)."""
        replica = self.replicas[broker]
        if replica.partition.is_leader:
            return
        replica.close()
        replica.open()
        if forgets:
            replica.partition.high_watermark = replica.partition.log_start_offset
        replica.learn(replica.image or self.image)

    # -- network ----------------------------------------------------------------------------------------------------

    def _deliver(self, replica: Replica) -> None:
        """Delivers one request and its response on each link of a replica."""
        replica.pass_time()
        for link in [link for link in replica.links if not link.is_closed]:
            if not link.is_up:
                link.is_up = True
                link.owner.on_up()
            frame, link.request = link.request, None
            if frame is not None and not link.is_closed:
                self._answer(replica, link, frame)
        replica.links = [link for link in replica.links if not link.is_closed]

    def _answer(self, replica: Replica, link: MemoryLink, frame: bytes) -> None:
        api_key, version, correlation_id, _, body = decode_request_header(frame, 4, len(frame))
        assert api_key == ApiKey.FETCH, "no offset is ever out of range where every log begins at 0"
        request = decode_fetch(frame, body, len(frame), version)
        led = self.replicas[link.target].partition
        lines = [self._line(replica.id, led, wanted) for _, all_wanted in request.topics for wanted in all_wanted]
        response = codec.encode_response(ApiKey.FETCH, version, fetched(*lines))
        answer = encode_response_frame(ApiKey.FETCH, version, correlation_id, response)
        link.owner.on_frame(memoryview(bytearray(answer)), 4, len(answer))

    @staticmethod
    def _line(follower: int, led: Partition, wanted: tuple[int, int, int, int, int, int]) -> Any:
        _, leader_epoch, offset, last_epoch, start_offset, _ = wanted
        code, epoch, end_offset = led.end_offset_for_epoch(max(last_epoch, 0), leader_epoch)
        if code:
            return line(error=code)
        if last_epoch >= 0 and (epoch < last_epoch or end_offset < offset):
            return line(diverging=(epoch, end_offset), high_watermark=led.high_watermark)
        if offset > led.log_end_offset:
            return line(error=int(ErrorCode.OFFSET_OUT_OF_RANGE))
        led.update_follower_fetch_state(follower, 1, offset, start_offset, NOW_MS)
        read = led.read(offset, 400, min_one_batch=True, isolation=LOG_END)
        data = b"" if read.slice is None else os.pread(read.slice.fd, read.slice.length, read.slice.position)
        if read.slice is not None:
            read.slice.release()
        return line(records=data, high_watermark=led.high_watermark)

    # -- invariants -------------------------------------------------------------------------------------------------

    @invariant()
    def what_the_leader_committed_stays(self) -> None:
        leading = self.replicas[self.image.leader]
        if leading.image is None or leading.image.epoch != self.image.epoch:
            return
        assert leading.data().startswith(self.committed), "a committed record is gone"
        prefix = leading.data(leading.partition.high_watermark)
        if len(prefix) > len(self.committed):
            self.committed = prefix

    @invariant()
    def nobody_believes_that_more_is_committed(self) -> None:
        for replica in self.replicas.values():
            if replica.table.get("t", 0) is not None:
                replica.partition.check()
                assert self.committed.startswith(replica.data(replica.partition.high_watermark)[: len(self.committed)])

    @rule()
    def everybody_ends_with_the_same_log(self) -> None:
        for replica in self.replicas.values():
            replica.learn(self.image)
        leading = self.replicas[self.image.leader]
        for _ in range(ROUNDS_MAX):
            for replica in self.replicas.values():
                self._deliver(replica)
            logs = {replica.data() for replica in self.replicas.values()}
            if len(logs) == 1 and leading.partition.high_watermark == leading.partition.log_end_offset:
                return
        raise AssertionError("the logs never became the same")


TestConvergence = Convergence.TestCase
TestConvergence.settings = settings(
    max_examples=EXAMPLES, stateful_step_count=30, suppress_health_check=list(HealthCheck)
)
