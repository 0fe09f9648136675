"""Calls about the cluster, most of them sent by brokers only. Rows of the API table."""

from __future__ import annotations

from typing import Final

from brokers.engine.handlers.api_rows.shared import BEFORE_LOGIN, CLUSTER, CLUSTERS_OWN, CLUSTERS_OWN_LIST, DESCRIBE
from brokers.engine.handlers.cluster import (
    allot_storage,
    api_versions,
    describe_cluster,
    elections,
    reassignments,
    report_flow,
)
from brokers.engine.handlers.required_rights import RequiredRights
from brokers.engine.handlers.served_api import ServedApi
from brokers.engine.protocol import request_limits as limits
from brokers.engine.protocol.apis import ApiKey

_K = ApiKey

ROWS: Final = (
    ServedApi(
        _K.API_VERSIONS,
        api_versions.api_versions,
        BEFORE_LOGIN,
        limit=limits.ONE,
    ),
    ServedApi(
        _K.DESCRIBE_CLUSTER,
        describe_cluster.describe_cluster,
        RequiredRights(
            {CLUSTER: DESCRIBE},
            "required only for the allowed operations on the cluster; the list of brokers is public",
        ),
        limit=limits.ONE,
    ),
    ServedApi(
        _K.ELECT_LEADERS,
        elections.elect_leaders,
        CLUSTERS_OWN,
        topic_list=CLUSTERS_OWN_LIST,
        limit=limits.ADMINISTRATION,
    ),
    ServedApi(
        _K.ALTER_PARTITION_REASSIGNMENTS,
        reassignments.alter_partition_reassignments,
        CLUSTERS_OWN,
        topic_list=CLUSTERS_OWN_LIST,
        limit=limits.ADMINISTRATION,
    ),
    ServedApi(
        _K.LIST_PARTITION_REASSIGNMENTS,
        reassignments.list_partition_reassignments,
        CLUSTERS_OWN,
        topic_list=CLUSTERS_OWN_LIST,
        limit=limits.ADMINISTRATION,
    ),
    ServedApi(
        _K.ALLOT_STORAGE,
        allot_storage.allot_storage,
        CLUSTERS_OWN,
        topic_list=CLUSTERS_OWN_LIST,
    ),
    ServedApi(
        _K.REPORT_FLOW,
        report_flow.report_flow,
        CLUSTERS_OWN,
        topic_list=CLUSTERS_OWN_LIST,
    ),
    ServedApi(
        _K.CHARGE_POOLS,
        report_flow.charge_pools,
        CLUSTERS_OWN,
        topic_list=CLUSTERS_OWN_LIST,
    ),
)
