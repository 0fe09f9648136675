"""Calls about users, access rules and client quotas. Rows of the API table."""

from __future__ import annotations

from typing import Final

from brokers.engine.handlers.api_rows.shared import (
    ALTER,
    ALTER_CONFIGS,
    BEFORE_LOGIN,
    CLUSTER,
    CLUSTERS_OWN,
    DESCRIBE,
    DESCRIBE_CONFIGS,
    result_count,
)
from brokers.engine.handlers.auditing import access as audit_access
from brokers.engine.handlers.auth import acls, scram_credentials, users
from brokers.engine.handlers.configs import client_quotas
from brokers.engine.handlers.required_rights import RequiredRights
from brokers.engine.handlers.served_api import ListAsked, ServedApi
from brokers.engine.protocol import request_limits as limits
from brokers.engine.protocol.apis import ApiKey

_K = ApiKey

ROWS: Final = (
    ServedApi(
        _K.SASL_HANDSHAKE,
        None,
        BEFORE_LOGIN,
        limit=limits.ONE,
    ),
    ServedApi(
        _K.SASL_AUTHENTICATE,
        None,
        BEFORE_LOGIN,
        limit=limits.ONE,
    ),
    ServedApi(
        _K.DESCRIBE_ACLS,
        acls.describe_acls,
        RequiredRights({CLUSTER: DESCRIBE}, "shows the access rules"),
        limit=limits.ONE,
        result_lines=acls.entries_described,
    ),
    ServedApi(
        _K.CREATE_ACLS,
        acls.create_acls,
        RequiredRights({CLUSTER: ALTER}, "ALTER on the cluster grants any right, also to oneself"),
        topic_list=ListAsked(None, "grants rights to topics, which no allow-list does"),
        limit=limits.ADMINISTRATION,
        audit=audit_access.acls_created,
        result_lines=acls.entries_made,
    ),
    ServedApi(
        _K.DELETE_ACLS,
        acls.delete_acls,
        RequiredRights({CLUSTER: ALTER}, "as CreateAcls"),
        topic_list=ListAsked(None, "revokes rights to topics, which no allow-list does"),
        limit=limits.ADMINISTRATION,
        audit=audit_access.acls_deleted,
        result_lines=acls.entries_removed,
    ),
    ServedApi(
        _K.DESCRIBE_CLIENT_QUOTAS,
        client_quotas.describe_client_quotas,
        RequiredRights({CLUSTER: DESCRIBE_CONFIGS}, "quotas count as configuration"),
        limit=limits.ONE,
        result_lines=client_quotas.entries_described,
    ),
    ServedApi(
        _K.ALTER_CLIENT_QUOTAS,
        client_quotas.alter_client_quotas,
        RequiredRights({CLUSTER: ALTER_CONFIGS}, "quotas count as configuration"),
        limit=limits.ADMINISTRATION,
        audit=audit_access.quotas_altered,
        result_lines=lambda response: len(response.entries),
    ),
    ServedApi(
        _K.DESCRIBE_USER_SCRAM_CREDENTIALS,
        scram_credentials.describe_user_scram_credentials,
        RequiredRights({CLUSTER: DESCRIBE}, "lists users"),
        limit=limits.ADMINISTRATION,
        result_lines=result_count,
    ),
    ServedApi(
        _K.ALTER_USER_SCRAM_CREDENTIALS,
        scram_credentials.alter_user_scram_credentials,
        RequiredRights({CLUSTER: ALTER}, "creates, changes and deletes users"),
        limit=limits.ADMINISTRATION,
        audit=audit_access.users_altered,
        result_lines=result_count,
    ),
    ServedApi(
        _K.DESCRIBE_USERS,
        users.describe_users,
        CLUSTERS_OWN,
    ),
    ServedApi(
        _K.ALTER_USERS,
        users.alter_users,
        CLUSTERS_OWN,
    ),
)
