"""Plans of purges, compared with a model: exactly the offsets below the new first one are deleted."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from instances.topics.purging import UP_TO_END, PartitionBounds, PurgeTarget, plan, require_deletable
from tenants.errors import Conflict, Invalid

PARTITIONS = st.integers(0, 5)


@st.composite
def logs(draw: st.DrawFn) -> dict[int, PartitionBounds]:
    result = {}
    for index in draw(st.sets(PARTITIONS, min_size=1)):
        start = draw(st.integers(0, 20))
        end = start + draw(st.integers(0, 20))
        at_time = draw(st.one_of(st.just(-1), st.integers(start, end)))
        result[index] = PartitionBounds(start=start, end=end, at_time=at_time)
    return result


@given(logs(), st.data())
def test_exactly_what_lies_below_goes(bounds: dict[int, PartitionBounds], data: st.DataObject) -> None:
    named = data.draw(st.sets(st.sampled_from(sorted(bounds)), min_size=1))
    offsets = {
        index: data.draw(st.one_of(st.just(UP_TO_END), st.integers(0, bounds[index].end))) for index in sorted(named)
    }
    lines = {line.partition: line for line in plan(PurgeTarget(offsets=offsets), bounds)}
    assert lines.keys() == named
    for index, line in lines.items():
        kept = range(bounds[index].start, bounds[index].end)
        below = bounds[index].end if offsets[index] == UP_TO_END else offsets[index]
        assert line.messages == len([offset for offset in kept if offset < below])
        assert bounds[index].start <= line.first_offset <= bounds[index].end


@given(logs())
def test_a_time_keeps_the_first_message_as_young_and_all_behind_it(bounds: dict[int, PartitionBounds]) -> None:
    for line in plan(PurgeTarget(at_ms=5), bounds):
        at_time = bounds[line.partition].at_time
        assert line.first_offset == (bounds[line.partition].end if at_time == -1 else at_time)


@given(logs(), PARTITIONS)
def test_an_offset_past_the_end_is_refused_with_its_place(bounds: dict[int, PartitionBounds], index: int) -> None:
    bounds = {index: PartitionBounds(start=3, end=7), **bounds}
    with pytest.raises(Invalid) as raised:
        plan(PurgeTarget(offsets={index: bounds[index].end + 1}), bounds)
    assert [error.pointer for error in raised.value.errors] == [f"/before/{index}"]


@pytest.mark.parametrize(
    ("policy", "is_refused"),
    [("compact", True), (" compact ", True), ("delete", False), ("compact,delete", False), (None, False), ("", False)],
)
def test_only_what_is_compacted_alone_is_refused(policy: str | None, is_refused: bool) -> None:
    if not is_refused:
        require_deletable({"cleanup.policy": policy})
        return
    with pytest.raises(Conflict) as raised:
        require_deletable({"cleanup.policy": policy})
    assert raised.value.code == "policy_violation"
