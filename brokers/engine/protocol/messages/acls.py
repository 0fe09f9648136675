"""DescribeAcls, CreateAcls and DeleteAcls. Types and operations are Kafka's numbers; pattern type 3 is literal."""

from __future__ import annotations

from brokers.engine.protocol.apis import ApiKey
from brokers.engine.protocol.fields import array, int8, int16, int32, request, response, struct, text

LITERAL = 3


# 1  pattern type
# 2  flexible
# 3  resources may be users
@request(ApiKey.DESCRIBE_ACLS)
class DescribeAclsRequest:
    resource_type_filter: int = int8()
    resource_name_filter: str | None = text(null_since=0)
    pattern_type_filter: int = int8(since=1, default=LITERAL)
    principal_filter: str | None = text(null_since=0)
    host_filter: str | None = text(null_since=0)
    operation: int = int8()
    permission_type: int = int8()


@struct
class AclDescription:
    principal: str = text()
    host: str = text()
    operation: int = int8()
    permission_type: int = int8()


@struct
class DescribeAclsResource:
    resource_type: int = int8()
    resource_name: str = text()
    pattern_type: int = int8(since=1, default=LITERAL)
    acls: list[AclDescription] = array(AclDescription)


# 1  pattern type
# 2  flexible
@response(ApiKey.DESCRIBE_ACLS)
class DescribeAclsResponse:
    throttle_time_ms: int = int32()
    error_code: int = int16()
    error_message: str | None = text(null_since=0)
    resources: list[DescribeAclsResource] = array(DescribeAclsResource)


@struct
class AclCreation:
    resource_type: int = int8()
    resource_name: str = text()
    resource_pattern_type: int = int8(since=1, default=LITERAL)
    principal: str = text()
    host: str = text()
    operation: int = int8()
    permission_type: int = int8()


# 1  pattern type
# 2  flexible
# 3  resources may be users
@request(ApiKey.CREATE_ACLS)
class CreateAclsRequest:
    creations: list[AclCreation] = array(AclCreation)


@struct
class AclCreationResult:
    error_code: int = int16()
    error_message: str | None = text(null_since=0)


# 2  flexible
@response(ApiKey.CREATE_ACLS)
class CreateAclsResponse:
    throttle_time_ms: int = int32()
    results: list[AclCreationResult] = array(AclCreationResult)


@struct
class DeleteAclsFilter:
    resource_type_filter: int = int8()
    resource_name_filter: str | None = text(null_since=0)
    pattern_type_filter: int = int8(since=1, default=LITERAL)
    principal_filter: str | None = text(null_since=0)
    host_filter: str | None = text(null_since=0)
    operation: int = int8()
    permission_type: int = int8()


# 1  pattern type
# 2  flexible
# 3  resources may be users
@request(ApiKey.DELETE_ACLS)
class DeleteAclsRequest:
    filters: list[DeleteAclsFilter] = array(DeleteAclsFilter)


@struct
class DeleteAclsMatchingAcl:
    error_code: int = int16()
    error_message: str | None = text(null_since=0)
    resource_type: int = int8()
    resource_name: str = text()
    pattern_type: int = int8(since=1, default=LITERAL)
    principal: str = text()
    host: str = text()
    operation: int = int8()
    permission_type: int = int8()


@struct
class DeleteAclsFilterResult:
    error_code: int = int16()
    error_message: str | None = text(null_since=0)
    matching_acls: list[DeleteAclsMatchingAcl] = array(DeleteAclsMatchingAcl)


# 1  pattern type
# 2  flexible
@response(ApiKey.DELETE_ACLS)
class DeleteAclsResponse:
    throttle_time_ms: int = int32()
    filter_results: list[DeleteAclsFilterResult] = array(DeleteAclsFilterResult)
