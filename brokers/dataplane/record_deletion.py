"""DeleteRecords at the leaders of a topic, as the instance's owner.

A leader answers after its followers have deleted the records as well, so that they do not reappear after a leader
change. The request may be repeated: until the time limit it is retried for partitions whose leader moved or is late.
"""

from __future__ import annotations

import time
from collections import defaultdict
from collections.abc import Mapping
from typing import Any

from django.utils.translation import gettext_noop
from kafka.protocol.admin.topics import DeleteRecordsRequest

from brokers.dataplane.admin_client import NO_BROKER_ANSWERS, cluster_of, domain_error_of, require_ok
from brokers.dataplane.scatter import Target, first_response, pair_with_targets, scatter, targets
from brokers.dataplane.topics import NO_SUCH_TOPIC, TIMED_OUT, metadata_request
from brokers.limits import DELETE_RECORDS_DEADLINE_S, DELETE_RECORDS_PATIENCE_S, DELETE_RECORDS_RETRY_S
from instances.topics.purging import policy_violation
from tenants.errors import DomainError, Invalid, Message, NotFound, OutcomeUnknown, Unavailable

DELETE_RECORDS_VERSION = 2
OFFSET_OUT_OF_RANGE = 1
LEADER_NOT_AVAILABLE, NOT_LEADER, POLICY_VIOLATION = 5, 6, 44
RETRIABLE_ERRORS = frozenset({LEADER_NOT_AVAILABLE, NOT_LEADER, TIMED_OUT})


def delete_records(instance_id: str, topic: str, offsets: Mapping[int, int]) -> Mapping[int, DomainError]:
    """Implements `instances.interfaces.delete_records`."""
    brokers = targets(cluster_of(instance_id), instance_id)
    deadline_s = time.monotonic() + DELETE_RECORDS_PATIENCE_S
    remaining, errors = dict(offsets), {}
    unfinished: dict[int, DomainError] = {}
    while remaining:
        codes, unanswered = _send_to_leaders(brokers, topic, remaining)
        suspect = {index: error for index, error in unfinished.items() if isinstance(error, OutcomeUnknown)}
        unfinished = unanswered | suspect
        for partition, code in codes.items():
            if code not in RETRIABLE_ERRORS:
                del remaining[partition]
                if code:
                    errors[partition] = _error_of(code)
        if not remaining or time.monotonic() > deadline_s:
            break
        time.sleep(DELETE_RECORDS_RETRY_S)
    return errors | {partition: unfinished[partition] for partition in remaining}


def _send_to_leaders(
    brokers: Mapping[int, Target], topic: str, offsets: Mapping[int, int]
) -> tuple[dict[int, int], dict[int, DomainError]]:
    """Sends one round of requests; returns error codes by partition, and errors of partitions without result."""
    (description,) = first_response(brokers.values(), lambda: metadata_request([topic])).topics
    if description.error_code in NO_SUCH_TOPIC:
        raise NotFound(Message(gettext_noop('There is no topic "%(name)s".'), name=topic))
    require_ok(description.error_code)
    by_leader: dict[int, dict[int, int]] = defaultdict(dict)
    for partition in description.partitions:
        if partition.partition_index in offsets:
            by_leader[partition.leader_id][partition.partition_index] = offsets[partition.partition_index]
    requests = {leader: _request(topic, leader_offsets) for leader, leader_offsets in by_leader.items()}
    scatter_result = scatter(pair_with_targets(brokers, requests), deadline_s=DELETE_RECORDS_DEADLINE_S, is_write=True)
    codes = {
        partition.partition_index: partition.error_code
        for _, response in scatter_result.responses
        for result in response.topics
        for partition in result.partitions
    }
    silent = {broker.broker_id for broker in scatter_result.silent} if scatter_result.may_be_executed else set()
    unfinished: dict[int, DomainError] = {}
    for leader, leader_offsets in by_leader.items():
        for partition in leader_offsets:
            is_suspect = leader in silent or codes.get(partition) == TIMED_OUT
            unfinished[partition] = OutcomeUnknown() if is_suspect else Unavailable(NO_BROKER_ANSWERS, retry_after_s=1)
    for partition in offsets.keys() - unfinished.keys():
        unfinished[partition] = Unavailable(NO_BROKER_ANSWERS, retry_after_s=1)
    return codes, unfinished


def _request(topic: str, offsets: Mapping[int, int]) -> Any:
    topic_class = DeleteRecordsRequest.DeleteRecordsTopic
    partitions = [
        topic_class.DeleteRecordsPartition(partition_index=index, offset=offset)
        for index, offset in sorted(offsets.items())
    ]
    return DeleteRecordsRequest(
        topics=[topic_class(name=topic, partitions=partitions)],
        timeout_ms=int(DELETE_RECORDS_DEADLINE_S * 1000) - 500,
        version=DELETE_RECORDS_VERSION,
    )


def _error_of(code: int) -> DomainError:
    if code == POLICY_VIOLATION:
        return policy_violation()
    if code == OFFSET_OUT_OF_RANGE:
        return Invalid(
            Message(gettext_noop("The offset lies past the end of the partition.")), code="offset_out_of_range"
        )
    return domain_error_of(code)
