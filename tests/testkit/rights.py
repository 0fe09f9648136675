"""Connections as users of an instance, and their rights, over a broker in the test's own loop."""

from __future__ import annotations

from typing import Any

from brokers.contract.acls import AclOperation, PatternType, Permission, ResourceType
from brokers.engine.access.principals import Principal
from brokers.engine.handlers.api_table import DISPATCH_TABLE
from brokers.engine.handlers.session import Session
from brokers.engine.protocol.apis import ADVERTISED_TENANT, ApiKey
from brokers.engine.protocol.messages.acls import (
    AclCreation,
    CreateAclsRequest,
    DeleteAclsFilter,
    DeleteAclsRequest,
    DescribeAclsRequest,
)
from tests.testkit.in_process import InProcessBroker
from tests.testkit.wire import HOST, WireClient

ANY = 1
VERSION = 3


async def client_as(broker: InProcessBroker, instance_id: str, user: str) -> WireClient:
    """Opens a connection to a tenant's port as an authenticated `user`."""
    services = broker.broker.services
    principal = Principal(user=user, instance_id=instance_id)

    def session(connection: Any) -> Session:
        return Session(services, connection, principal, ADVERTISED_TENANT, DISPATCH_TABLE)

    name = f"{instance_id}/{user}"
    listener = broker.broker.listeners.get(name)
    if listener is None:
        listener = broker.broker.listeners.bind(name, HOST, 0, session)
        listener.start_accepting()
    return await broker.client(listener.port)


def acl(
    principal: str,
    operation: AclOperation,
    resource_type: ResourceType,
    name: str,
    *,
    permission: Permission = Permission.ALLOW,
    pattern_type: PatternType = PatternType.LITERAL,
    host: str = "*",
) -> AclCreation:
    return AclCreation(
        resource_type=int(resource_type),
        resource_name=name,
        resource_pattern_type=int(pattern_type),
        principal=principal,
        host=host,
        operation=int(operation),
        permission_type=int(permission),
    )


async def create_acls(client: WireClient, *creations: AclCreation, version: int = VERSION) -> list[int]:
    """Creates rules; returns the error code of each."""
    answer = await client.call(ApiKey.CREATE_ACLS, version, CreateAclsRequest(creations=list(creations)))
    return [result.error_code for result in answer.results]


def acl_filter(**changes: Any) -> DeleteAclsFilter:
    """Returns a filter that matches everything but for the given fields."""
    defaults = {
        "resource_type_filter": ANY,
        "resource_name_filter": None,
        "pattern_type_filter": ANY,
        "principal_filter": None,
        "host_filter": None,
        "operation": ANY,
        "permission_type": ANY,
    }
    return DeleteAclsFilter(**{**defaults, **changes})


async def delete_acls(client: WireClient, *filters: DeleteAclsFilter, version: int = VERSION) -> Any:
    """Deletes rules; returns the results."""
    request = DeleteAclsRequest(filters=list(filters) or [acl_filter()])
    return (await client.call(ApiKey.DELETE_ACLS, version, request)).filter_results


async def describe_acls(client: WireClient, *, version: int = VERSION, **more: Any) -> Any:
    """Returns the answer to DescribeAcls."""
    filter_ = acl_filter(**more)
    request = DescribeAclsRequest(**{name: getattr(filter_, name) for name in filter_.__slots__})
    return await client.call(ApiKey.DESCRIBE_ACLS, version, request)
