"""Three replicas in thousands of random runs: no acknowledged record is lost, high watermarks never decrease, logs are
equal below them, and each epoch has one leader (REP-3, REP-5, REP-11, REP-19, REP-25).
"""

from __future__ import annotations

import os
import tempfile
from pathlib import Path

from hypothesis import HealthCheck, Phase, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule, run_state_machine_as_test

from tests.testkit import depth
from tests.unit.brokers.engine.replication.replica_world import BROKERS, LAG_MS_MAX, ReplicaWorld

EXAMPLES = depth.number_from("PENSTOCK_REPLICA_EXAMPLES", short=8, long=20)
brokers = st.sampled_from(BROKERS)


class Replicas(RuleBasedStateMachine):
    world: ReplicaWorld

    @initialize(min_insync=st.sampled_from((1, 2)))
    def begin(self, min_insync: int) -> None:
        self._scratch = tempfile.TemporaryDirectory()
        self.world = ReplicaWorld(Path(self._scratch.name), min_insync=min_insync)
        self.seen: dict[tuple[int, int], int] = {}
        for broker in BROKERS:
            self.world.show(broker)

    def teardown(self) -> None:
        if not hasattr(self, "world"):
            return
        leader = self.world.heal()
        data = [batch[61:] for batch in self.world.batches(leader.leader)]
        for record in self.world.acknowledged:
            assert any(record.value in batch for batch in data), f"{record} was acknowledged and is lost"
        for replica in self.world.replicas.values():
            assert self.world.batches(replica.broker) == self.world.batches(leader.leader)
            replica.kill()
        self._scratch.cleanup()

    @rule(broker=brokers, count=st.integers(1, 3))
    def produce(self, broker: int, count: int) -> None:
        self.world.produce(broker, count)

    @rule(broker=brokers)
    def produce_to_the_leader(self, broker: int) -> None:
        self.world.produce(self.world.state.leader if self.world.state.leader > 0 else broker)

    @rule(broker=brokers)
    def fetch(self, broker: int) -> None:
        self.world.fetch(broker)

    @rule()
    def fetch_all(self) -> None:
        for broker in BROKERS:
            self.world.fetch(broker)

    @rule(broker=brokers)
    def show(self, broker: int) -> None:
        self.world.show(broker)

    @rule(preferred=brokers)
    def elect(self, preferred: int) -> None:
        self.world.elect(preferred)

    @rule(preferred=brokers)
    def move_the_lead(self, preferred: int) -> None:
        self.world.elect(preferred)
        for broker in BROKERS:
            self.world.show(broker)

    @rule(broker=brokers)
    def write_isr(self, broker: int) -> None:
        self.world.write_isr(broker)

    @rule()
    def time_passes(self) -> None:
        self.world.now_ms += LAG_MS_MAX * 2 // 3

    @rule(behind=brokers)
    def leave_one_behind(self, behind: int) -> None:
        """Lets a replica lag long enough for its leader to remove it from the ISR."""
        for _ in range(2):
            self.world.now_ms += LAG_MS_MAX * 2 // 3
            for broker in BROKERS:
                if broker != behind:
                    self.world.fetch(broker)
        for broker in BROKERS:
            self.world.write_isr(broker)

    @rule(broker=brokers)
    def kill(self, broker: int) -> None:
        if self.world.replicas[broker].is_up:
            self.world.replicas[broker].kill()

    @rule(broker=brokers)
    def start(self, broker: int) -> None:
        replica = self.world.replicas[broker]
        if not replica.is_up:
            replica.start()

    @invariant()
    def holds(self) -> None:
        if not hasattr(self, "world"):
            return
        self.world.check()
        for replica in self.world.replicas.values():
            partition = replica.partition
            if replica.is_up and partition is not None:
                key = (replica.broker, replica.incarnation)
                assert partition.high_watermark >= self.seen.get(key, 0), "a high watermark moved back"
                assert partition.high_watermark <= partition.log_end_offset
                self.seen[key] = partition.high_watermark


def test_no_acknowledged_record_is_lost_whatever_happens_to_replicas() -> None:
    run_state_machine_as_test(  # type: ignore[no-untyped-call]
        Replicas,
        settings=settings(
            max_examples=EXAMPLES,
            stateful_step_count=60,
            suppress_health_check=list(HealthCheck),
            phases=(Phase.generate,) if os.environ.get("PENSTOCK_REPLICA_NO_SHRINKING") else tuple(Phase),
        ),
    )
