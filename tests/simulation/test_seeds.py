"""Seeds that once failed, kept (PRODUCT: a failure found is a failure tested), and that a failure tells its history."""

from __future__ import annotations

import pytest

from brokers.engine.storage.flushing import FlushJob
from tests.simulation.__main__ import simulate

# 4: a truncation was undone by a power cut, beside what was written after it. 2: with the deletion of segments undone,
# deleted records were served. 3: a kill while the start moved left batches without an epoch. 1994689733: of records
# deleted by request, below what retention had just deleted, nothing durable said so.
ONCE_FAILED = (2, 3, 4, 1_994_689_733)
STEPS = 300


@pytest.mark.parametrize("seed", ONCE_FAILED)
def test_a_log_keeps_its_promises_over_any_crash(seed: int) -> None:
    assert simulate("log", seed, STEPS) == STEPS


def test_a_broken_promise_is_told_with_all_that_led_to_it(monkeypatch: pytest.MonkeyPatch) -> None:
    """A flush that syncs nothing: the simulator must notice."""
    monkeypatch.setattr(FlushJob, "run", lambda job: setattr(job, "_done", True))
    with pytest.raises(AssertionError) as failure:
        for seed in range(20):
            simulate("log", seed, STEPS)
    assert "flush" in failure.value.__notes__[0].splitlines()
    assert "lose power" in failure.value.__notes__[0].splitlines()[-1]
