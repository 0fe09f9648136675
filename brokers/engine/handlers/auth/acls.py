"""DescribeAcls, CreateAcls and DeleteAcls: the access rules of an instance (KIP-140, KIP-290).

Resources have the names that the instance's owner uses, and the cluster resource is the instance. Any broker writes
rules, and answers as soon as its own metadata has them.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Final

from brokers.contract import paths
from brokers.contract.acls import (
    CLUSTER_NAME,
    ENTRIES_MAX,
    NAME_BYTES_MAX,
    AclDocument,
    AclEntry,
    AclOperation,
    PatternType,
    Permission,
    ResourcePattern,
    ResourceType,
)
from brokers.engine.access.acl_filters import AclFilter, sort_documents
from brokers.engine.cluster.acl_writes import split_into_transactions
from brokers.engine.cluster.errors import ClusterError
from brokers.engine.handlers.context import RequestContext
from brokers.engine.handlers.topics.topics import ResourceError, check_right
from brokers.engine.handlers.zookeeper_change import wait_until_applied, zookeeper_change
from brokers.engine.protocol.errors import ErrorCode, MalformedRequest
from brokers.engine.protocol.messages.acls import (
    AclCreation,
    AclCreationResult,
    AclDescription,
    CreateAclsRequest,
    CreateAclsResponse,
    DeleteAclsFilter,
    DeleteAclsFilterResult,
    DeleteAclsMatchingAcl,
    DeleteAclsRequest,
    DeleteAclsResponse,
    DescribeAclsRequest,
    DescribeAclsResource,
    DescribeAclsResponse,
)
from brokers.engine.scheduling.time_slice import TimeSlice

# Maximum number of entries in one CreateAcls: the most that an instance may have.
CREATIONS_MAX: Final = ENTRIES_MAX
# Maximum number of filters in one DeleteAcls: each is compared with all entries of the instance.
FILTERS_MAX: Final = 500

_UNKNOWN: Final = 0
_PATTERN_TYPES_FROM: Final = 1

# Entries to add or to remove, by pattern.
Grants = dict[ResourcePattern, list[AclEntry]]
_Write = Callable[[str, Mapping[ResourcePattern, Sequence[AclEntry]]], Awaitable[int | None]]
_Result = AclCreationResult | DeleteAclsMatchingAcl


async def describe_acls(context: RequestContext, request: DescribeAclsRequest) -> DescribeAclsResponse:
    _check_known(request.resource_type_filter, request.pattern_type_filter, request.operation, request.permission_type)
    try:
        check_right(context)
        documents = _documents(context)
    except ResourceError as error:
        return DescribeAclsResponse(error_code=error.code, error_message=str(error), resources=[])
    time_slice = TimeSlice()
    resources = []
    for pattern, entries in _filter(context, request).select(sort_documents(documents.values())):
        resources.append(_describe(pattern, entries))
        await time_slice.pause()
    return DescribeAclsResponse(error_code=0, error_message=None, resources=resources)


def _describe(pattern: ResourcePattern, entries: Sequence[AclEntry]) -> DescribeAclsResource:
    return DescribeAclsResource(
        resource_type=int(pattern.resource_type),
        resource_name=pattern.name,
        pattern_type=int(pattern.pattern_type),
        acls=[
            AclDescription(
                principal=entry.principal,
                host=entry.host,
                operation=int(entry.operation),
                permission_type=int(entry.permission),
            )
            for entry in entries
        ],
    )


async def create_acls(context: RequestContext, request: CreateAclsRequest) -> CreateAclsResponse:
    time_slice = TimeSlice()
    for creation in request.creations:
        await time_slice.pause()
        _check_known(
            creation.resource_type, creation.resource_pattern_type, creation.operation, creation.permission_type
        )
    try:
        check_right(context)
        _instance_id(context)
    except ResourceError as error:
        error_result = AclCreationResult(error_code=error.code, error_message=str(error))
        return CreateAclsResponse(results=[error_result] * len(request.creations))
    results: list[AclCreationResult] = []
    grants: Grants = {}
    results_by_pattern: dict[ResourcePattern, list[AclCreationResult]] = {}
    for number, creation in enumerate(request.creations):
        await time_slice.pause()
        result = AclCreationResult(error_code=0, error_message=None)
        results.append(result)
        try:
            if number >= CREATIONS_MAX:
                raise ResourceError(ErrorCode.INVALID_REQUEST, f"At most {CREATIONS_MAX} entries in one request.")
            pattern, entry = _validated_entry(creation)
        except ResourceError as error:
            result.error_code, result.error_message = error.code, str(error)
            continue
        grants.setdefault(pattern, []).append(entry)
        results_by_pattern.setdefault(pattern, []).append(result)
    await _change(context, grants, results_by_pattern, context.services.metadata.store.add_acls)
    return CreateAclsResponse(results=results)


async def delete_acls(context: RequestContext, request: DeleteAclsRequest) -> DeleteAclsResponse:
    """Deletes the matching entries. Each is reported once, under the first filter that it matches."""
    time_slice = TimeSlice()
    for acl_filter in request.filters:
        await time_slice.pause()
        _check_known(
            acl_filter.resource_type_filter,
            acl_filter.pattern_type_filter,
            acl_filter.operation,
            acl_filter.permission_type,
        )
    try:
        check_right(context)
        documents = {document.pattern: document for document in sort_documents(_documents(context).values())}
    except ResourceError as error:
        error_result = DeleteAclsFilterResult(error_code=error.code, error_message=str(error), matching_acls=[])
        return DeleteAclsResponse(filter_results=[error_result] * len(request.filters))
    results: list[DeleteAclsFilterResult] = []
    entries_to_remove: Grants = {}
    results_by_pattern: dict[ResourcePattern, list[DeleteAclsMatchingAcl]] = {}
    for number, acl_filter in enumerate(request.filters):
        await time_slice.pause()
        if number >= FILTERS_MAX:
            message = f"At most {FILTERS_MAX} filters in one request."
            code = int(ErrorCode.INVALID_REQUEST)
            results.append(DeleteAclsFilterResult(error_code=code, error_message=message, matching_acls=[]))
            continue
        matching: list[DeleteAclsMatchingAcl] = []
        for pattern, entries in list(_filter(context, acl_filter).select(documents.values())):
            remaining_entries = documents.pop(pattern).entries.difference(entries)
            if remaining_entries:
                documents[pattern] = AclDocument(pattern=pattern, entries=remaining_entries)
            entries_to_remove.setdefault(pattern, []).extend(entries)
            pattern_results = [_matching_acl(pattern, entry) for entry in entries]
            results_by_pattern.setdefault(pattern, []).extend(pattern_results)
            matching += pattern_results
        results.append(DeleteAclsFilterResult(error_code=0, error_message=None, matching_acls=matching))
        await time_slice.pause()
    await _change(context, entries_to_remove, results_by_pattern, context.services.metadata.store.remove_acls)
    return DeleteAclsResponse(filter_results=results)


async def _change(
    context: RequestContext,
    changes: Grants,
    results_by_pattern: Mapping[ResourcePattern, Sequence[_Result]],
    write: _Write,
) -> None:
    """Writes the patterns in parts, sets failures in their results, and waits until this broker's metadata has them."""
    written: list[int | None] = []
    for number, part in enumerate(split_into_transactions(changes)):
        try:
            async with zookeeper_change(context, sum(map(len, part.values()))):
                if not number:
                    # A user that lost its right during the wait changes nothing. A user that removes its own right with
                    # this request may finish it.
                    check_right(context)
                written.append(await write(_instance_id(context), part))
        except (ResourceError, ClusterError) as failure:
            code = failure.code if isinstance(failure, ResourceError) else failure.wire_code
            for pattern in part:
                for result in results_by_pattern[pattern]:
                    result.error_code, result.error_message = code, str(failure)
    await wait_until_applied(context.services.metadata.current, written)


def _check_known(*kinds: int) -> None:
    """Rejects a resource type, pattern type, operation or permission type of 0, which Kafka's clients cannot send and
    its brokers treat as a malformed request.

    Raises:
        MalformedRequest: the connection is closed.
    """
    if _UNKNOWN in kinds:
        raise MalformedRequest("an ACL of an unknown kind")


def _instance_id(context: RequestContext) -> str:
    if context.view.instance_id is None:
        raise ResourceError(ErrorCode.INVALID_REQUEST, "Access control lists belong to an instance.")
    return context.view.instance_id


def _documents(context: RequestContext) -> Mapping[str, AclDocument]:
    return context.services.metadata.current.image.acls.of_instance(_instance_id(context))


def _filter(context: RequestContext, acl_filter: DescribeAclsRequest | DeleteAclsFilter) -> AclFilter:
    return AclFilter(
        resource_type=acl_filter.resource_type_filter,
        name=acl_filter.resource_name_filter,
        pattern_type=acl_filter.pattern_type_filter
        if context.version >= _PATTERN_TYPES_FROM
        else int(PatternType.LITERAL),
        principal=acl_filter.principal_filter,
        host=acl_filter.host_filter,
        operation=acl_filter.operation,
        permission=acl_filter.permission_type,
    )


def rule_of(creation: AclCreation) -> tuple[ResourcePattern, AclEntry]:
    """Returns the pattern and the entry of a creation. Raises ValueError if one of its kinds does not exist."""
    pattern = ResourcePattern(
        ResourceType(creation.resource_type), creation.resource_name, PatternType(creation.resource_pattern_type)
    )
    operation, permission = AclOperation(creation.operation), Permission(creation.permission_type)
    return pattern, AclEntry(creation.principal, creation.host, operation, permission)


def _validated_entry(creation: AclCreation) -> tuple[ResourcePattern, AclEntry]:
    """Returns the pattern and the entry of a creation. Raises ResourceError if an instance cannot have them."""
    try:
        pattern, entry = rule_of(creation)
    except ValueError as error:
        raise ResourceError(ErrorCode.INVALID_REQUEST, f"An access control entry cannot have this: {error}.") from None
    if pattern.resource_type is ResourceType.CLUSTER and pattern.name != CLUSTER_NAME:
        raise ResourceError(
            ErrorCode.INVALID_REQUEST, f"The only valid name for the CLUSTER resource is {CLUSTER_NAME}"
        )
    if not pattern.name:
        raise ResourceError(ErrorCode.INVALID_REQUEST, "Invalid empty resource name")
    kind, colon, _ = entry.principal.partition(":")
    if not (kind and colon):
        raise ResourceError(ErrorCode.INVALID_REQUEST, "A principal is of the form User:name, or User:* for everybody.")
    for text in (pattern.name, entry.principal, entry.host):
        if not _is_surely_short(text) and len(paths.sanitise(text)) > NAME_BYTES_MAX:
            raise ResourceError(
                ErrorCode.INVALID_REQUEST,
                f"Names of resources, principals and hosts have at most {NAME_BYTES_MAX} bytes, and what is not a "
                "letter, digit, '-', '_' or '.' counts as three for each byte of UTF-8.",
            )
    return pattern, entry


def _is_surely_short(text: str) -> bool:
    """True if the encoded name fits, whatever its characters are; an exact check takes a hundred times as long."""
    return text.isascii() and len(text) * 3 <= NAME_BYTES_MAX


def _matching_acl(pattern: ResourcePattern, entry: AclEntry) -> DeleteAclsMatchingAcl:
    return DeleteAclsMatchingAcl(
        error_code=0,
        error_message=None,
        resource_type=int(pattern.resource_type),
        resource_name=pattern.name,
        pattern_type=int(pattern.pattern_type),
        principal=entry.principal,
        host=entry.host,
        operation=int(entry.operation),
        permission_type=int(entry.permission),
    )
