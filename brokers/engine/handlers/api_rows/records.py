"""Rows of the API table for calls about records: their offsets, epochs and deletion."""

from __future__ import annotations

from typing import Final

from brokers.engine.access.authorizer import Operation
from brokers.engine.handlers.api_rows.shared import BY_PARTITION, DELETE, DESCRIBE, READ, TOPIC, TRANSACTION, WRITE
from brokers.engine.handlers.auditing import topics_and_groups as audit_topics
from brokers.engine.handlers.common import fresh_topics
from brokers.engine.handlers.common.long_requests import response_length_by
from brokers.engine.handlers.fetch import list_offsets
from brokers.engine.handlers.served_api import RequiredAllowList, RequiredRights, ServedApi
from brokers.engine.handlers.topics import delete_records
from brokers.engine.protocol import framing as limits
from brokers.engine.protocol.apis import ApiKey

_K = ApiKey

ROWS: Final = (
    ServedApi(
        _K.PRODUCE,
        None,
        RequiredRights({TOPIC: WRITE, TRANSACTION: WRITE}, "the transactional id is checked for transactional batches"),
        allow_list=RequiredAllowList(Operation.PRODUCE, "writes records"),
        limit=limits.PRODUCE,
    ),
    ServedApi(
        _K.FETCH,
        None,
        RequiredRights({TOPIC: READ}, "reads records"),
        allow_list=RequiredAllowList(Operation.CONSUME, "reads records"),
        limit=limits.FETCH,
    ),
    ServedApi(
        _K.LIST_OFFSETS,
        list_offsets.list_offsets,
        RequiredRights({TOPIC: DESCRIBE}, "shows the first and last offsets"),
        allow_list=RequiredAllowList(Operation.CONSUME, "shows the number of records, and their times"),
        split=BY_PARTITION,
        named_topics=fresh_topics.topics,
        response_length=response_length_by(BY_PARTITION),
    ),
    ServedApi(
        _K.OFFSET_FOR_LEADER_EPOCH,
        list_offsets.offset_for_leader_epoch,
        RequiredRights({TOPIC: DESCRIBE}, "shows where records end"),
        allow_list=RequiredAllowList(Operation.CONSUME, "shows where records end"),
        split=BY_PARTITION,
        named_topics=fresh_topics.topics_of_epochs,
        response_length=response_length_by(BY_PARTITION),
    ),
    ServedApi(
        _K.DELETE_RECORDS,
        delete_records.delete_records,
        RequiredRights({TOPIC: DELETE}, "shortens the topic"),
        allow_list=RequiredAllowList(Operation.ADMINISTER, "shortens the topic"),
        split=BY_PARTITION,
        named_topics=fresh_topics.topics_with_partitions,
        audit=audit_topics.describe_record_deletion,
        response_length=response_length_by(BY_PARTITION),
    ),
)
