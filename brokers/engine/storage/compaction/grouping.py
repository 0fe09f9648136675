"""Grouping of adjacent segments that are merged (CMP-19): no result exceeds the size of a segment. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, NamedTuple

RELATIVE_OFFSET_MAX: Final = 2**31 - 1


class SourceSegment(NamedTuple):
    """A closed segment on disk; `next_base` is the base offset of the segment after it."""

    base_offset: int
    next_base: int
    size_bytes: int
    index_bytes: int
    time_index_bytes: int


def group(sources: Sequence[SourceSegment], segment_bytes: int, index_bytes: int) -> list[list[SourceSegment]]:
    """Returns groups of adjacent segments that together are within the limits of one segment; a segment that exceeds
    them alone is a group of its own.
    """
    groups: list[list[SourceSegment]] = []
    for source in sources:
        if groups and _fits(groups[-1], source, segment_bytes, index_bytes):
            groups[-1].append(source)
        else:
            groups.append([source])
    return groups


def _fits(members: Sequence[SourceSegment], source: SourceSegment, segment_bytes: int, index_bytes: int) -> bool:
    return (
        sum(member.size_bytes for member in members) + source.size_bytes <= segment_bytes
        and sum(member.index_bytes for member in members) + source.index_bytes <= index_bytes
        and sum(member.time_index_bytes for member in members) + source.time_index_bytes <= index_bytes
        and source.next_base - 1 - members[0].base_offset <= RELATIVE_OFFSET_MAX
    )
