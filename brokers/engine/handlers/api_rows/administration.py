"""Rows of the API table for calls that administer topics, users, access rules, quotas and the cluster."""

from __future__ import annotations

from typing import Final

from brokers.engine.access.authorizer import Operation
from brokers.engine.handlers.api_rows.shared import (
    ALTER,
    ALTER_CONFIGS,
    BEFORE_LOGIN,
    BY_PARTITION,
    CLUSTER,
    CLUSTER_ONLY,
    CLUSTER_ONLY_LIST,
    CREATE,
    DELETE,
    DESCRIBE,
    DESCRIBE_CONFIGS,
    TOPIC,
    element_count,
    response_count,
    result_count,
)
from brokers.engine.handlers.auditing import access as audit_access
from brokers.engine.handlers.auditing import topics_and_groups as audit_topics
from brokers.engine.handlers.auth import acls, scram_credentials, users
from brokers.engine.handlers.cluster import api_versions, leaders_and_replicas, log_dirs
from brokers.engine.handlers.common import fresh_topics, peer_brokers
from brokers.engine.handlers.common.long_requests import response_length_by
from brokers.engine.handlers.configs import alter_configs, client_quotas, describe_configs
from brokers.engine.handlers.served_api import RequiredAllowList, RequiredRights, ServedApi
from brokers.engine.handlers.topics import metadata, topics
from brokers.engine.protocol import framing as limits
from brokers.engine.protocol.apis import ApiKey

_K = ApiKey

_CONFIGURES: Final = RequiredRights(
    {TOPIC: ALTER_CONFIGS, CLUSTER: ALTER_CONFIGS}, "topics are checked by name, brokers as the cluster"
)
_CONFIGURES_TOPIC: Final = RequiredAllowList(Operation.ADMINISTER, "configures the topic")


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
        allow_list=RequiredAllowList(Operation.DESCRIBE, "shows that a topic exists, and its leaders"),
        response_length=response_length_by(BY_PARTITION),
    ),
    ServedApi(
        _K.CREATE_TOPICS,
        topics.create_topics,
        RequiredRights(
            {TOPIC: CREATE},
            "CREATE on the cluster covers every topic; the configuration is shown with DESCRIBE_CONFIGS on the topic",
            ((CREATE, CLUSTER), (DESCRIBE_CONFIGS, TOPIC)),
        ),
        allow_list=RequiredAllowList(
            None, "the topic does not exist yet; the allow-lists of a deleted one apply at once"
        ),
        limit=limits.ADMINISTRATION,
        audit=audit_topics.describe_topic_creation,
        response_length=element_count(lambda response: response.topics, lambda topic: topic.configs),
    ),
    ServedApi(
        _K.DELETE_TOPICS,
        topics.delete_topics,
        RequiredRights(
            {TOPIC: DELETE}, "a topic given by id is named in the response with DESCRIBE on it", ((DESCRIBE, TOPIC),)
        ),
        allow_list=RequiredAllowList(Operation.ADMINISTER, "deletes the topic"),
        limit=limits.ADMINISTRATION,
        named_topics=fresh_topics.topics_to_delete,
        audit=audit_topics.describe_topic_deletion,
        response_length=response_count,
    ),
    ServedApi(
        _K.CREATE_PARTITIONS,
        topics.create_partitions,
        RequiredRights({TOPIC: ALTER}, "grows the topic"),
        allow_list=RequiredAllowList(Operation.ADMINISTER, "grows the topic"),
        limit=limits.ADMINISTRATION,
        named_topics=fresh_topics.topics,
        audit=audit_topics.describe_topic_growth,
        response_length=result_count,
    ),
    ServedApi(
        _K.DESCRIBE_CONFIGS,
        describe_configs.describe_configs,
        RequiredRights(
            {TOPIC: DESCRIBE_CONFIGS, CLUSTER: DESCRIBE_CONFIGS}, "topics are checked by name, brokers as the cluster"
        ),
        allow_list=RequiredAllowList(Operation.DESCRIBE, "shows the configuration of a topic, which clients need"),
        limit=limits.ADMINISTRATION,
        named_topics=fresh_topics.topic_resources,
        response_length=element_count(lambda response: response.results, lambda result: result.configs),
    ),
    ServedApi(
        _K.ALTER_CONFIGS,
        alter_configs.alter_configs,
        _CONFIGURES,
        allow_list=_CONFIGURES_TOPIC,
        limit=limits.ADMINISTRATION,
        named_topics=fresh_topics.topic_resources,
        audit=audit_topics.describe_topic_configuration,
        response_length=response_count,
    ),
    ServedApi(
        _K.INCREMENTAL_ALTER_CONFIGS,
        alter_configs.incremental_alter_configs,
        _CONFIGURES,
        allow_list=_CONFIGURES_TOPIC,
        limit=limits.ADMINISTRATION,
        named_topics=fresh_topics.topic_resources,
        audit=audit_topics.describe_topic_configuration,
        response_length=response_count,
    ),
    ServedApi(
        _K.DESCRIBE_LOG_DIRS,
        log_dirs.describe_log_dirs,
        RequiredRights({CLUSTER: DESCRIBE}, "shows the stored bytes"),
        allow_list=RequiredAllowList(Operation.ADMINISTER, "shows the stored bytes"),
        response_length=element_count(log_dirs.topics_of, lambda topic: topic.partitions),
    ),
    ServedApi(_K.SASL_HANDSHAKE, None, BEFORE_LOGIN, limit=limits.ONE),
    ServedApi(_K.SASL_AUTHENTICATE, None, BEFORE_LOGIN, limit=limits.ONE),
    ServedApi(
        _K.DESCRIBE_ACLS,
        acls.describe_acls,
        RequiredRights({CLUSTER: DESCRIBE}, "shows the access rules"),
        limit=limits.ONE,
        response_length=element_count(lambda response: response.resources, lambda resource: resource.acls),
    ),
    ServedApi(
        _K.CREATE_ACLS,
        acls.create_acls,
        RequiredRights({CLUSTER: ALTER}, "ALTER on the cluster grants any right, also to oneself"),
        allow_list=RequiredAllowList(None, "grants rights to topics, which no allow-list does"),
        limit=limits.ADMINISTRATION,
        audit=audit_access.describe_acl_creation,
        response_length=result_count,
    ),
    ServedApi(
        _K.DELETE_ACLS,
        acls.delete_acls,
        RequiredRights({CLUSTER: ALTER}, "as CreateAcls"),
        allow_list=RequiredAllowList(None, "revokes rights to topics, which no allow-list does"),
        limit=limits.ADMINISTRATION,
        audit=audit_access.describe_acl_deletion,
        response_length=element_count(lambda response: response.filter_results, lambda result: result.matching_acls),
    ),
    ServedApi(
        _K.DESCRIBE_CLIENT_QUOTAS,
        client_quotas.describe_client_quotas,
        RequiredRights({CLUSTER: DESCRIBE_CONFIGS}, "quotas count as configuration"),
        limit=limits.ONE,
        response_length=lambda response: len(response.entries or ()),
    ),
    ServedApi(
        _K.ALTER_CLIENT_QUOTAS,
        client_quotas.alter_client_quotas,
        RequiredRights({CLUSTER: ALTER_CONFIGS}, "quotas count as configuration"),
        limit=limits.ADMINISTRATION,
        audit=audit_access.describe_quota_alteration,
        response_length=lambda response: len(response.entries),
    ),
    ServedApi(
        _K.DESCRIBE_USER_SCRAM_CREDENTIALS,
        scram_credentials.describe_user_scram_credentials,
        RequiredRights({CLUSTER: DESCRIBE}, "lists users"),
        limit=limits.ADMINISTRATION,
        response_length=result_count,
    ),
    ServedApi(
        _K.ALTER_USER_SCRAM_CREDENTIALS,
        scram_credentials.alter_user_scram_credentials,
        RequiredRights({CLUSTER: ALTER}, "creates, changes and deletes users"),
        limit=limits.ADMINISTRATION,
        audit=audit_access.describe_user_alteration,
        response_length=result_count,
    ),
    ServedApi(_K.DESCRIBE_USERS, users.describe_users, CLUSTER_ONLY),
    ServedApi(_K.ALTER_USERS, users.alter_users, CLUSTER_ONLY),
    ServedApi(_K.API_VERSIONS, api_versions.api_versions, BEFORE_LOGIN, limit=limits.ONE),
    ServedApi(
        _K.DESCRIBE_CLUSTER,
        metadata.describe_cluster,
        RequiredRights(
            {CLUSTER: DESCRIBE},
            "required only for the allowed operations on the cluster; the list of brokers is public",
        ),
        limit=limits.ONE,
    ),
    ServedApi(
        _K.ELECT_LEADERS,
        leaders_and_replicas.elect_leaders,
        CLUSTER_ONLY,
        allow_list=CLUSTER_ONLY_LIST,
        limit=limits.ADMINISTRATION,
    ),
    ServedApi(
        _K.ALTER_PARTITION_REASSIGNMENTS,
        leaders_and_replicas.alter_partition_reassignments,
        CLUSTER_ONLY,
        allow_list=CLUSTER_ONLY_LIST,
        limit=limits.ADMINISTRATION,
    ),
    ServedApi(
        _K.LIST_PARTITION_REASSIGNMENTS,
        leaders_and_replicas.list_partition_reassignments,
        CLUSTER_ONLY,
        allow_list=CLUSTER_ONLY_LIST,
        limit=limits.ADMINISTRATION,
    ),
    ServedApi(_K.ALLOT_STORAGE, peer_brokers.allot_storage, CLUSTER_ONLY, allow_list=CLUSTER_ONLY_LIST),
    ServedApi(_K.REPORT_FLOW, peer_brokers.report_flow, CLUSTER_ONLY, allow_list=CLUSTER_ONLY_LIST),
    ServedApi(_K.CHARGE_POOLS, peer_brokers.charge_pools, CLUSTER_ONLY, allow_list=CLUSTER_ONLY_LIST),
)
