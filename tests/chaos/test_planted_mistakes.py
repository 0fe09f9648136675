"""The exactly-once workload finds the mistakes that it is there to find, and none where there is none.

Half a minute each: `PENSTOCK_CHAOS_PLANTED=1` runs them.
"""

from __future__ import annotations

import os
import random
from pathlib import Path

import pytest

from tests.chaos.exactly_once import ExactlyOnce
from tests.chaos.faults import Faults
from tests.chaos.planted import PLANTED
from tests.testkit.engine import EngineCluster

pytestmark = [
    pytest.mark.system,
    pytest.mark.timeout(300),
    pytest.mark.skipif(
        not os.environ.get("PENSTOCK_CHAOS_PLANTED"), reason="half a minute each: PENSTOCK_CHAOS_PLANTED=1 runs them"
    ),
]

SECONDS = float(os.environ.get("PENSTOCK_CHAOS_PLANTED_SECONDS", "12"))
BETWEEN_S = (0.3, 1.2)
RECORDS_PER_S = 400


@pytest.mark.parametrize("mistake", sorted(PLANTED))
def test_a_mistake_is_found_by_what_applications_wrote(mistake: str, zookeeper_address: str, tmp_path: Path) -> None:
    lines: list[str] = []
    random_ = random.Random(1)
    overrides = {"group.min.session.timeout.ms": "1000", "group.initial.rebalance.delay.ms": "0"}
    module = ("tests.chaos.planted", mistake)
    with EngineCluster(zookeeper_address, tmp_path, overrides=overrides, module=module) as cluster:
        instance = cluster.create_instance("ins-planted0")
        workload = ExactlyOnce(cluster, instance, random_, lines.append, records_per_s=RECORDS_PER_S)
        faults = Faults(cluster, random_, lines.append, between_s=BETWEEN_S, away_s=(0.5, 1.0))
        holds = workload.run(SECONDS, ["application"], faults, BETWEEN_S)
    print(*lines, sep="\n")
    assert holds is (mistake == "nothing"), "\n".join(lines)
