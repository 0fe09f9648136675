"""The cluster at random (PRODUCT: a failure found is a failure tested): seeds that once failed, some that did not, and
that the same seed takes the same steps.
"""

from __future__ import annotations

import pytest

from tests.simulation.__main__ import STEPS_OF_RUN, simulate
from tests.simulation.chunks import chunks, run_seeds, seeds_wanted, sent
from tests.simulation.cluster.run import ClusterRun
from tests.simulation.matrix import quick_directory
from tests.testkit import depth

STEPS = STEPS_OF_RUN["cluster"]
# 18: who lost its session and kept its connections fetched on in the name of its earlier incarnation, and never came
# back into an ISR. 24: a session that ended while its broker stood still between two steps of its start took the
# registration along, and nobody noticed. 317: of two readings of ZooKeeper at a time the older one was published last,
# and a broker that had come back in between was never seen again. 30313: who stood still between reading a topic and
# its states had somebody in sync that was no replica; a leader would not have waited for that one. 25, 30: somebody who
# had told of a deletion was killed before it was on disk, and led with the records back. 20049, 20125, 20163: who led a
# topic wrote its ISR over the state of the one made again under its name. 20136: of a topic made again with fewer
# partitions the others stayed. 20208: a controller that was just elected, and had a late image, deleted the topic made
# again. 30230: a power cut took the id of a log that was not flushed yet, and the log was taken for the one made again.
# 10365: a topic was being deleted as a broker started, and made again elsewhere; the broker kept the log. 10592: a log
# took over the high watermark of the one of its name that had been deleted before the last start. 20147: a disk failed
# while DeleteRecords waited for followers, and the answer was that all had deleted. 10998: a topic that was deleted
# while a broker read everything at its start was taken for one that makes no sense. 30627: the log of a topic that was
# made again, and was being deleted again, while its broker was away stayed for ever.
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
# Of the 2,000 that PENSTOCK_CLUSTER_SEEDS=2000 runs; in a week a short run each day has as many as a long one.
FIRST_SEED, SEEDS = seeds_wanted("PENSTOCK_CLUSTER_SEEDS", short=11, long=77, first_seed=10_000)


@pytest.mark.parametrize("seed", depth.day_share(ONCE_FAILED, 4))
def test_a_cluster_keeps_its_promises_where_it_once_did_not(seed: int) -> None:
    assert simulate("cluster", seed, STEPS) == STEPS


@pytest.mark.parametrize("chunk", chunks(FIRST_SEED, SEEDS), ids=sent)
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
