"""What we answer otherwise than Apache Kafka 3.9.1 about groups, offsets and transactions, each with its reason."""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any

from tests.differential.difference import AS_LISTED, NOTHING_DROPPED, ONE_ERROR_CODE, Difference

NO_SHARE_GROUPS = "there are no share groups: who looks for their coordinator need not try again"
NOBODYS_TRANSACTION = "a transactional batch of no producer would be part of a transaction that nobody can end"
JOINERS_COUNT = "what a member reads counts from its join on, not from the end of the rebalance: its offsets are kept"
EACH_VERIFIED = "a transaction asked for twice is answered for what was asked each time"
ANSWERED = "a question about nothing is answered; a client would wait for ever"
NO_PRODUCER = "a marker of no producer ends no transaction and is refused, with a code that says so"


def _twice(answer: Any) -> Any:
    partitions = answer["topics"][0]["partitions"]
    partitions.append(copy.deepcopy(partitions[-1]))
    return answer


def _listed(name: str) -> Callable[[Any], Any]:
    return lambda answer: {**answer, "topics": [{"name": name}]}


def _listed_for(group: str, name: str) -> Callable[[Any], Any]:
    return lambda _: {"groups": [{"group_id": group, "topics": [{"name": name}]}]}


def _fetched_twice(answer: Any) -> Any:
    partitions = answer["groups"][0]["topics"][0]["partitions"]
    partitions.append(copy.deepcopy(partitions[-1]))
    return answer


def _code(code: int) -> Callable[[Any], Any]:
    """The first partition of the first topic gets this error."""

    def ours(answer: Any) -> Any:
        answer["topics"][0]["partitions"][0]["error_code"] = code
        return answer

    return ours


def _refused_marker(answer: Any) -> Any:
    answer["markers"][0]["topics"][0]["partitions"][0]["error_code"] = 42
    return answer


def _refused_batch(answer: Any) -> Any:
    answer["responses"][0]["partition_responses"][0] |= {"error_code": 87, "base_offset": -1}
    return answer


def _share_groups(answer: Any) -> Any:
    answer["coordinators"][0]["error_code"] = 42
    return answer


def _joiners_offsets_kept(answer: Any) -> Any:
    other = {"name": "diff.deleted.other", "partitions": [{"error_code": 86}]}
    answer["topics"][0] = other
    return answer


def _joiners_offsets_left(answer: Any) -> Any:
    answer["groups"][0]["topics"].insert(0, {"name": "diff.deleted.other", "partitions": [{"committed_offset": 3}]})
    return answer


def _verified_apart(answer: Any) -> Any:
    answer["results_by_transaction"][0]["topic_results"][0]["results_by_partition"] = [{}]
    return answer


def _whole_batches(answer: Any) -> Any:
    partition = answer["responses"][0]["partitions"][0]
    partition["records"] = [entry for entry in partition["records"] if "cut_bytes" not in entry]
    return answer


COORDINATING: tuple[Difference, ...] = (
    Difference("coordinators", "v6: kind 2", NO_SHARE_GROUPS, _share_groups),
    Difference("commits", "v[1-9], no members: a partition twice", NOTHING_DROPPED, _twice),
    Difference("commits", "v?, no members: a topic without partitions", AS_LISTED, _listed("diff.commits.topic")),
    Difference("commits", "fetch v[0-7]: a partition twice", NOTHING_DROPPED, _twice),
    Difference("commits", "fetch v[0-7]: a topic without partitions", AS_LISTED, _listed("diff.commits.topic")),
    Difference("commits", "fetch v[89]: a partition twice", NOTHING_DROPPED, _fetched_twice),
    *(
        Difference(
            "commits",
            f"fetch v{version}: a topic without partitions",
            AS_LISTED,
            _listed_for(f"diff.commits.fetched.v{version}", "diff.commits.topic"),
        )
        for version in (8, 9)
    ),
    Difference("commits", "v0, no members: an empty group id", ONE_ERROR_CODE, _code(24)),
    Difference("commits", "fetch v0: an empty group id", ONE_ERROR_CODE, _code(3)),
    Difference("commits", "fetch v[89]: no groups", ANSWERED, lambda _: {}),
    Difference("deleted_groups", "offsets: a topic without partitions", AS_LISTED, _listed("diff.deleted.topic")),
    Difference("deleted_groups", "offsets: preparing", JOINERS_COUNT, _joiners_offsets_kept),
    Difference("deleted_groups", "offsets: left to members", JOINERS_COUNT, _joiners_offsets_left),
    Difference("transaction_offsets", "v?: a partition twice", NOTHING_DROPPED, _twice),
    Difference("transaction_offsets", "v?: a topic without partitions", AS_LISTED, _listed("diff.txnoffsets.topic")),
    Difference(
        "transaction_offsets",
        "deleted: described",
        "a group of which nothing is left is no more, whatever was pending for it when all was deleted",
        lambda _: {"groups": [{"group_id": "diff.txnoffsets.deleted", "group_state": "Dead"}]},
    ),
    Difference("transaction_partitions", "v[45]: no transactions", ANSWERED, lambda _: {}),
    Difference("transaction_partitions", "v[45]: verify a transaction twice", EACH_VERIFIED, _verified_apart),
    Difference("transaction_produce", "*: no producer id", NOBODYS_TRANSACTION, _refused_batch),
    Difference(
        "transaction_fetch",
        "*: 300 bytes from 6, committed",
        "a fetch is cut between batches, never inside one",
        _whole_batches,
    ),
    *(
        Difference(
            "markers",
            f"v{version}: {what}",
            AS_LISTED,
            lambda _, version=version, marker=marker: {
                "markers": [{"producer_id": f"producer {1 + 4 * version}", **marker(version)}]
            },
        )
        for version in (0, 1)
        for what, marker in (
            ("no partitions", lambda version: {"topics": [{"name": f"diff.markers.v{version}"}]}),
            ("no topics", lambda version: {}),
        )
    ),
    Difference("markers", "v?: producer id -1", NO_PRODUCER, _refused_marker),
    Difference("markers", "v?: producer epoch -1", NO_PRODUCER, _refused_marker),
)
