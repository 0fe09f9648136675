"""Three zones on hosts of their own: one is cut off past its session and another one narrowed, and nothing
acknowledged is lost. Unavailability is printed.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from config.embedded.zookeeper import EmbeddedZooKeeper
from tests.chaos.__main__ import NAMESPACES, ChaosOptions, run
from tests.testkit.host_network import missing_requirement

pytestmark = [
    pytest.mark.system,
    pytest.mark.timeout(300),
    pytest.mark.long("tests/chaos", "tests/testkit/host_network.py", "brokers/engine/replication"),
]


@pytest.mark.parametrize("verb", ["cut", "throttle"])
def test_nothing_acknowledged_is_lost_when_a_zone_is_cut_off_or_narrow(
    verb: str, zookeeper_server: EmbeddedZooKeeper, tmp_path: Path
) -> None:
    if missing := missing_requirement():
        pytest.skip(f"hosts in network namespaces: {missing}")
    options = ChaosOptions(
        seed=1,
        seconds=15.0,
        verbs=[verb],
        records_per_s=2_000,
        between_s=(1.0, 2.0),
        hosts=NAMESPACES,
        cut_s=(12.0, 15.0),
        throttled_s=(8.0, 10.0),
    )
    assert run(options, zookeeper_server, tmp_path / "brokers")
