"""Simulated cluster: seeds that once failed, some others, and the determinism of seeds."""

from __future__ import annotations

import pytest

from tests.simulation.__main__ import STEPS_OF_RUN, simulate
from tests.simulation.chunks import chunk_id, chunks, run_seeds, seeds_wanted
from tests.simulation.cluster.run import ClusterRun
from tests.simulation.matrix import quick_directory
from tests.testkit import depth

STEPS = STEPS_OF_RUN["cluster"]
# 18: a broker that lost its session but kept its connections went on fetching as its earlier incarnation, and never
# returned to an ISR. 24: a session ended while its broker was paused between two steps of its start, which removed the
# registration unnoticed. 317: of two simultaneous reads of ZooKeeper the older one was published last, and a broker
# that had returned in between was never seen again. 30313: a broker paused between reading a topic and its states had a
# broker in sync that was no replica, for which a leader would not have waited. 25, 30: a broker that had reported a
# deletion was killed before it was on disk, and led with the records back. 20049, 20125, 20163: a leader wrote its ISR
# over the state of the topic that was created again under the name. 20136: a topic was created again with fewer
# partitions, and the others stayed. 20208: a newly elected controller with an outdated image deleted the topic that was
# created again. 30230: a power cut lost the id of an unflushed log, which was then used for the topic created again.
# 10365: a topic was being deleted when a broker started, and created again elsewhere; the broker kept the log. 10592: a
# log got the high watermark of a log of the same name that had been deleted before the last start. 20147: a disk failed
# while DeleteRecords waited for followers, and the response said that all had deleted. 10998: a topic that was deleted
# while a starting broker read everything was reported as malformed. 30627: the log of a topic that was created and
# deleted again while its broker was down stayed for ever.
ONCE_FAILED = (
    18,
    24,
    25,
    30,
    317,
    10_365,
    10_592,
    10_998,
    20_014,
    20_049,
    20_057,
    20_125,
    20_136,
    20_147,
    20_163,
    20_208,
    30_230,
    30_313,
    30_627,
    51_128,
)
# Part of the 2,000 seeds that PENSTOCK_CLUSTER_SEEDS=2000 runs; a week of daily short runs has as many as a long run.
FIRST_SEED, SEEDS = seeds_wanted("PENSTOCK_CLUSTER_SEEDS", short=11, long=77, first_seed=10_000)


@pytest.mark.parametrize("seed", depth.day_share(ONCE_FAILED, 4))
def test_a_cluster_keeps_its_promises_where_it_once_did_not(seed: int) -> None:
    assert simulate("cluster", seed, STEPS) == STEPS


@pytest.mark.parametrize("chunk", chunks(FIRST_SEED, SEEDS), ids=chunk_id)
def test_a_cluster_keeps_its_promises_whatever_goes_wrong(chunk: range, capsys: pytest.CaptureFixture[str]) -> None:
    run_seeds("cluster", chunk, capsys)


def test_the_same_seed_takes_the_same_steps() -> None:
    def history() -> list[str]:
        with quick_directory() as home:
            run = ClusterRun(7, home)
            try:
                for _ in range(150):
                    run.step()
                run.finish()
            finally:
                run.close()
            return run.history

    lines = history()
    assert lines == history()
    assert any("acknowledged" in line for line in lines)
