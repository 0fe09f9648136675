"""Groups and transactional ids that a chosen broker coordinates."""

from __future__ import annotations

import itertools

from brokers.engine.protocol.apis import ApiKey
from brokers.engine.protocol.messages.coordinators import FindCoordinatorRequest
from tests.differential.members import GROUP, TRANSACTION
from tests.differential.trio.play import TrioPlayer
from tests.support.engine import eventually


def coordinated_by(play: TrioPlayer, role: str, prefix: str, *, is_group: bool) -> str:
    """A name, `prefix` and a number, whose coordinator is this broker."""
    for number in itertools.count():
        name = f"{prefix}{number}"
        if (
            eventually(lambda name=name: _coordinator(play, name, is_group=is_group), "a coordinator")
            == play.trio.ids[role]
        ):
            return name
    raise AssertionError("numbers do not end")


def _coordinator(play: TrioPlayer, name: str, *, is_group: bool) -> int | None:
    request = FindCoordinatorRequest(key=name, key_type=GROUP if is_group else TRANSACTION)
    found = play.at["A"].call(ApiKey.FIND_COORDINATOR, 1, request)
    return None if found.error_code else int(found.node_id)
