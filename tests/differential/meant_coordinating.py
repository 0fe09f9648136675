"""Intended differences from Apache Kafka 3.9.1 about groups, offsets and transactions, each with its reason."""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any

from tests.differential.difference import AS_LISTED, NOTHING_DROPPED, ONE_ERROR_CODE, Difference

NO_SHARE_GROUPS = "there are no share groups: who looks for their coordinator need not try again"
NOBODYS_TRANSACTION = "a transactional batch of no producer would be part of a transaction that nobody can end"
EACH_VERIFIED = "a transaction asked for twice is answered for what was asked each time"
ANSWERED = "a question about nothing is answered; a client would wait for ever"
REPORTED_IN_EACH = (
    "a version without an error for the whole answer has it for every partition, instead of nothing at all"
)
REPORTED_IN_EACH_AS_WELL = (
    "an error to ask again for stands in every partition as well: one client looks there alone, and would begin anew "
    "(decision 76)"
)
PENDING_IS_WANTED = (
    "what an open transaction is about to replace is not taken away, nor its own offset with it (GRP-26)"
)
DECIDED = "the other end than the one that is decided is refused at once, not once every partition knows (TXN-10)"
ANSWERED_AGAIN = "who asks again for the last epoch is told it again, as for every other epoch (TXN-6)"
NOBODYS_EPOCH = "the epoch that fences was given to nobody: who names it guesses (TXN-6)"
EPOCH_AHEAD = "an epoch ahead of the open transaction is for its coordinator to judge, which fences it (decision 73)"
OWN_SEAT = "an instance that is started again takes its own seat, also in a full group (GRP-18)"
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


def _reported_in_each(_: Any) -> Any:
    return {"topics": [{"name": "diff.first.topic", "partitions": [{"committed_offset": -1, "error_code": 16}]}]}


def _last_epoch(producer: str) -> Callable[[Any], Any]:
    return lambda _: {"producer_id": producer, "producer_epoch": 32766}


def _fenced(answer: Any) -> Any:
    answer["results_by_topic_v3_and_below"][0]["results_by_partition"][0]["partition_error_code"] = 90
    return answer


def _one_marker_less(answer: Any) -> Any:
    answer["responses"][0]["partition_responses"][0]["base_offset"] = 2
    return answer


def _pending_left(answer: Any) -> Any:
    answer["groups"][0]["topics"] = [{"name": "diff.expiry.topic", "partitions": [{"committed_offset": 5}]}]
    return answer


def _pending_left_unstable(answer: Any) -> Any:
    line = {"committed_offset": -1, "error_code": 88}
    answer["groups"][0]["topics"] = [{"name": "diff.expiry.topic", "partitions": [line]}]
    return answer


def _refused_batch(answer: Any) -> Any:
    answer["responses"][0]["partition_responses"][0] |= {"error_code": 87, "base_offset": -1}
    return answer


def _fenced_batch(answer: Any) -> Any:
    answer["responses"][0]["partition_responses"] = [{"error_code": 47, "base_offset": -1}]
    return answer


def _share_groups(answer: Any) -> Any:
    answer["coordinators"][0]["error_code"] = 42
    return answer


def _verified_apart(answer: Any) -> Any:
    answer["results_by_transaction"][0]["topic_results"][0]["results_by_partition"] = [{}]
    return answer


def _whole_batches(answer: Any) -> Any:
    partition = answer["responses"][0]["partitions"][0]
    partition["records"] = [entry for entry in partition["records"] if "cut_bytes" not in entry]
    return answer


def _back_in_its_seat(version: int) -> Callable[[Any], Any]:
    leader = 10 * version - 16
    kind = {"protocol_type": "consumer"} if version >= 7 else {}
    sent = {"leader": f"one-#{leader}", "member_id": f"two-#{leader + 1}"}
    return lambda _: {"generation_id": 2, **kind, "protocol_name": "range", **sent}


COORDINATING: tuple[Difference, ...] = (
    Difference("first_coordinators", "fetch v1", REPORTED_IN_EACH, _reported_in_each),
    Difference(
        "first_coordinators", "fetch v2", REPORTED_IN_EACH_AS_WELL, lambda answer: answer | _reported_in_each(answer)
    ),
    Difference("offset_expiry", "pending: left", PENDING_IS_WANTED, _pending_left),
    Difference("offset_expiry", "pending: left, stable", PENDING_IS_WANTED, _pending_left_unstable),
    *(
        Difference(
            "full_groups", f"v{version}: the second instance, started again", OWN_SEAT, _back_in_its_seat(version)
        )
        for version in range(5, 10)
    ),
    Difference("refused_markers", "commit: ended again with abort", DECIDED, lambda _: {"error_code": 48}),
    Difference("refused_markers", "abort: ended again with commit", DECIDED, lambda _: {"error_code": 48}),
    *(
        Difference("used_up_epochs", f"expected: the last epoch, {again}", ANSWERED_AGAIN, _last_epoch("producer 3"))
        for again in ("again", "a third time")
    ),
    Difference("used_up_epochs", "previous: asked again", ANSWERED_AGAIN, _last_epoch("producer 6")),
    *(
        Difference("used_up_epochs", label, ONE_ERROR_CODE, lambda answer: {**answer, "error_code": 90})
        for label in ("open, epoch 32766: expected", "previous: two before", "previous: ahead")
    ),
    Difference("used_up_epochs", "open, epoch 32767: add", NOBODYS_EPOCH, _fenced),
    Difference("used_up_epochs", "open: produce by the other", NOBODYS_EPOCH, _one_marker_less),
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
    Difference("transaction_produce", "*: the epoch ahead where*", EPOCH_AHEAD, _fenced_batch),
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
