"""Groups and transactional ids that a chosen broker coordinates."""

from __future__ import annotations

import itertools

from brokers.engine.protocol.apis import ApiKey
from brokers.engine.protocol.messages.groups import DescribeGroupsRequest, FindCoordinatorRequest
from brokers.engine.protocol.messages.producers import DescribeTransactionsRequest
from brokers.engine.protocol.messages.transactions import InitProducerIdRequest
from tests.differential.members import COORDINATOR_ERRORS, GROUP, TRANSACTION
from tests.differential.trio.play import TrioPlayer
from tests.testkit.engine import eventually


def coordinated_by(play: TrioPlayer, role: str, prefix: str, *, is_group: bool) -> str:
    """A name, `prefix` and a number, whose coordinator is this broker and ready."""
    for number in itertools.count():
        name = f"{prefix}{number}"
        result = eventually(lambda name=name: _coordinator(play, name, is_group=is_group), "a coordinator")
        if result == play.trio.ids[role]:
            eventually(lambda name=name: _is_ready(play, role, name, is_group=is_group), f"{role} coordinates {name}")
            return name
    raise AssertionError("numbers do not end")


def _is_ready(play: TrioPlayer, role: str, name: str, *, is_group: bool) -> bool:
    at = play.at[role]
    if is_group:
        (group,) = at.call(ApiKey.DESCRIBE_GROUPS, 0, DescribeGroupsRequest(groups=[name])).groups
        return group.error_code not in COORDINATOR_ERRORS
    wanted = DescribeTransactionsRequest(transactional_ids=[name])
    (transaction,) = at.call(ApiKey.DESCRIBE_TRANSACTIONS, 0, wanted).transaction_states
    answer = at.call(ApiKey.INIT_PRODUCER_ID, 4, InitProducerIdRequest(transactional_id=None))
    return not COORDINATOR_ERRORS & {transaction.error_code, answer.error_code}


def _coordinator(play: TrioPlayer, name: str, *, is_group: bool) -> int | None:
    request = FindCoordinatorRequest(key=name, key_type=GROUP if is_group else TRANSACTION)
    result = play.at["A"].call(ApiKey.FIND_COORDINATOR, 1, request)
    return None if result.error_code else int(result.node_id)
