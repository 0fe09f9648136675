"""Calls about topics and their configuration. Rows of the API table."""

from __future__ import annotations

from typing import Final

from brokers.engine.access.authorizer import Operation
from brokers.engine.handlers.api_rows.shared import (
    ALTER,
    ALTER_CONFIGS,
    CLUSTER,
    CREATE,
    DELETE,
    DESCRIBE,
    DESCRIBE_CONFIGS,
    TOPIC,
    response_count,
    result_count,
)
from brokers.engine.handlers.auditing import topics as audit_topics
from brokers.engine.handlers.cluster import (
    log_dirs,
)
from brokers.engine.handlers.common import fresh_topics
from brokers.engine.handlers.configs import alter_configs, describe_configs
from brokers.engine.handlers.required_rights import RequiredRights
from brokers.engine.handlers.served_api import ListAsked, ServedApi
from brokers.engine.handlers.topics import create_partitions, metadata, topics
from brokers.engine.protocol import request_limits as limits
from brokers.engine.protocol.apis import ApiKey

_K = ApiKey

_CONFIGURES: Final = RequiredRights(
    {TOPIC: ALTER_CONFIGS, CLUSTER: ALTER_CONFIGS}, "topics are checked by name, brokers as the cluster"
)
_CONFIGURES_TOPIC: Final = ListAsked(Operation.ADMINISTER, "configures the topic")

ROWS: Final = (
    ServedApi(
        _K.METADATA,
        metadata.metadata,
        RequiredRights(
            {TOPIC: DESCRIBE},
            "a request for all topics omits those without DESCRIBE; auto-creation "
            "requires CREATE on the cluster or on the topic; operations on the cluster are shown "
            "with DESCRIBE on it",
            ((CREATE, CLUSTER), (CREATE, TOPIC), (DESCRIBE, CLUSTER)),
        ),
        topic_list=ListAsked(Operation.DESCRIBE, "shows that a topic exists, and its leaders"),
        result_lines=metadata.lines_described,
    ),
    ServedApi(
        _K.CREATE_TOPICS,
        topics.create_topics,
        RequiredRights(
            {TOPIC: CREATE},
            "CREATE on the cluster covers every topic; the configuration is shown with DESCRIBE_CONFIGS on the topic",
            ((CREATE, CLUSTER), (DESCRIBE_CONFIGS, TOPIC)),
        ),
        topic_list=ListAsked(None, "the topic does not exist yet; the allow-lists of a deleted one apply at once"),
        limit=limits.ADMINISTRATION,
        audit=audit_topics.created,
        result_lines=topics.lines_created,
    ),
    ServedApi(
        _K.DELETE_TOPICS,
        topics.delete_topics,
        RequiredRights(
            {TOPIC: DELETE},
            "a topic given by id is named in the response with DESCRIBE on it",
            ((DESCRIBE, TOPIC),),
        ),
        topic_list=ListAsked(Operation.ADMINISTER, "deletes the topic"),
        limit=limits.ADMINISTRATION,
        topics_named=fresh_topics.topics_to_delete,
        audit=audit_topics.deleted,
        result_lines=response_count,
    ),
    ServedApi(
        _K.CREATE_PARTITIONS,
        create_partitions.create_partitions,
        RequiredRights({TOPIC: ALTER}, "grows the topic"),
        topic_list=ListAsked(Operation.ADMINISTER, "grows the topic"),
        limit=limits.ADMINISTRATION,
        topics_named=fresh_topics.topics,
        audit=audit_topics.grown,
        result_lines=result_count,
    ),
    ServedApi(
        _K.DESCRIBE_CONFIGS,
        describe_configs.describe_configs,
        RequiredRights(
            {TOPIC: DESCRIBE_CONFIGS, CLUSTER: DESCRIBE_CONFIGS}, "topics are checked by name, brokers as the cluster"
        ),
        topic_list=ListAsked(Operation.DESCRIBE, "shows the configuration of a topic, which clients need"),
        limit=limits.ADMINISTRATION,
        topics_named=fresh_topics.topic_resources,
        result_lines=describe_configs.settings_described,
    ),
    ServedApi(
        _K.ALTER_CONFIGS,
        alter_configs.alter_configs,
        _CONFIGURES,
        topic_list=_CONFIGURES_TOPIC,
        limit=limits.ADMINISTRATION,
        topics_named=fresh_topics.topic_resources,
        audit=audit_topics.configured,
        result_lines=response_count,
    ),
    ServedApi(
        _K.INCREMENTAL_ALTER_CONFIGS,
        alter_configs.incremental_alter_configs,
        _CONFIGURES,
        topic_list=_CONFIGURES_TOPIC,
        limit=limits.ADMINISTRATION,
        topics_named=fresh_topics.topic_resources,
        audit=audit_topics.configured,
        result_lines=response_count,
    ),
    ServedApi(
        _K.DESCRIBE_LOG_DIRS,
        log_dirs.describe_log_dirs,
        RequiredRights({CLUSTER: DESCRIBE}, "shows the stored bytes"),
        topic_list=ListAsked(Operation.ADMINISTER, "shows the stored bytes"),
        result_lines=log_dirs.lines_described,
    ),
)
