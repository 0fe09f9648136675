"""Simulated log: seeds that once failed, and the history in the report of a failure."""

from __future__ import annotations

import pytest

from brokers.engine.storage.flushing import FlushJob
from tests.simulation.__main__ import simulate

# 4: a power cut undid a truncation, but not the later writes. 2: a power cut undid the deletion of segments, and
# deleted records were served. 3: a kill while the log start moved left batches without an epoch. 1994689733: a
# requested deletion of records below those that retention had just deleted was not durable.
ONCE_FAILED = (2, 3, 4, 1_994_689_733)
STEPS = 300


@pytest.mark.parametrize("seed", ONCE_FAILED)
def test_a_log_keeps_its_promises_over_any_crash(seed: int) -> None:
    assert simulate("log", seed, STEPS) == STEPS


def test_a_broken_promise_is_reported_with_all_that_led_to_it(monkeypatch: pytest.MonkeyPatch) -> None:
    """The simulator must detect a flush that syncs nothing."""
    monkeypatch.setattr(FlushJob, "run", lambda job: setattr(job, "_was_run", True))
    with pytest.raises(AssertionError) as failure:
        for seed in range(20):
            simulate("log", seed, STEPS)
    assert "flush" in failure.value.__notes__[0].splitlines()
    assert "lose power" in failure.value.__notes__[0].splitlines()[-1]
