"""Pace of a copy, and what the end of a partition says about a write without an answer."""

from __future__ import annotations

import pytest

from instances.copying.limits import COPY_BYTES_PER_S_MAX
from instances.copying.pace import bytes_per_s, duration_s, resolved_offset

MARKS = ((10, 110), (25, 130))


@pytest.mark.parametrize(
    ("end", "offset"), [(500, 100), (510, 110), (525, 130), (511, None), (526, None), (499, None)]
)  # fmt: skip
def test_a_write_was_stored_up_to_one_of_its_batches_or_another_client_wrote(end: int, offset: int | None) -> None:
    assert resolved_offset(100, 500, end, MARKS) == offset


def test_a_copy_takes_a_quarter_of_the_bandwidth_up_to_a_limit() -> None:
    assert bytes_per_s(4) == 1_000_000
    assert bytes_per_s(100_000) == COPY_BYTES_PER_S_MAX
    assert duration_s(2_500_001, 4) == 3
