"""REST API of an instance's access rules, and of the test whether a user may do something."""

from __future__ import annotations

import hashlib
from dataclasses import astuple

from drf_spectacular.utils import OpenApiExample
from rest_framework.request import Request
from rest_framework.response import Response

from instances import access, services
from instances.acls import selectors
from instances.acls.checking import address_of
from instances.acls.constants import MATCH, OPERATIONS_OF
from instances.acls.interfaces import AccessQuestion, AclFilter, AclRule
from instances.api import user_serializers as s
from tenants.api.base import ApiView, endpoint
from tenants.choices import Scope
from tenants.errors import FieldError, Invalid

DATA_PLANE_ERRORS = (409, 503)
KEY_CHARS_MAX = 200

READ_EXAMPLE = OpenApiExample(
    "May read a topic",
    value={"principal": "User:billing", "resource_type": "topic", "resource_name": "orders", "operation": "read"},
    request_only=True,
)
GROUPS_EXAMPLE = OpenApiExample(
    "May use consumer groups whose names begin with billing-",
    value={
        "principal": "User:billing",
        "resource_type": "group",
        "resource_name": "billing-",
        "pattern_type": "prefixed",
        "operation": "read",
    },
    request_only=True,
)


class AclCollection(ApiView):
    tag = "Access rules"

    @endpoint("list_acls", Scope.ACLS_READ, query=s.AclQuery, page_item=s.AclOut, errors=DATA_PLANE_ERRORS)
    def get(self, request: Request, instance_id: str) -> Response:
        """List access rules, by resource."""
        if self.query.get("pattern_type") == MATCH and "resource_name" not in self.query:
            detail = "`match` needs the name of a resource."
            raise Invalid(detail, errors=[FieldError(parameter="resource_name", detail=detail, code="needed")])
        instance = access.instance(self.actor, instance_id)
        parts = {name: value for name, value in self.query.items() if name in AclFilter.__dataclass_fields__}
        return self.page_items(selectors.acl_list(instance, AclFilter(**parts)), s.AclOut, key=_key)

    @endpoint(
        "create_acl",
        Scope.ACLS_WRITE,
        body=s.AclIn,
        returns=s.AclOut,
        status=201,
        errors=DATA_PLANE_ERRORS,
        examples=(READ_EXAMPLE, GROUPS_EXAMPLE),
    )
    def post(self, request: Request, instance_id: str) -> Response:
        """Create an access rule.

        In force within a second, on open connections too. A rule that exists already gets the same response.
        """
        instance = access.instance(self.actor, instance_id)
        rule = AclRule(**self.body)
        services.create_acls(acting=self.actor, instance=instance, rules=[rule], dry_run=self.dry_run)
        return self.one(rule, s.AclOut, status=201)

    @endpoint("delete_acls", Scope.ACLS_WRITE, query=s.AclDeletion, returns=s.AclsDeletedOut, errors=DATA_PLANE_ERRORS)
    def delete(self, request: Request, instance_id: str) -> Response:
        """Delete access rules.

        Deletes every rule that matches all given parts: all seven parts name one rule, `principal` alone names all
        rules of a user. At least one part is needed, and at least one rule has to match (else 404). Returns the deleted
        rules.
        """
        instance = access.instance(self.actor, instance_id)
        parts = {name: value for name, value in self.query.items() if name in AclFilter.__dataclass_fields__}
        if not parts:
            raise Invalid("Say which rules: name at least one part of them.", code="empty_filter")
        deleted, _ = services.delete_acls(
            acting=self.actor, instance=instance, rule_filter=AclFilter(**parts), dry_run=self.dry_run
        )
        return self.one({"deleted": deleted}, s.AclsDeletedOut)


class AccessTest(ApiView):
    tag = "Access rules"

    @endpoint("test_access", Scope.ACLS_READ, query=s.AccessQuery, returns=s.AccessOut, errors=DATA_PLANE_ERRORS)
    def get(self, request: Request, instance_id: str) -> Response:
        """Decide whether a user may do something, and by which rule.

        Evaluates the rules only: whether the user exists, is disabled or expired plays no role. `no_rules_…`: the
        resource has no rule at all, and the instance's `allow_everyone_if_no_acl` decides. `cluster_needs_rule`: the
        instance is open, but altering its cluster takes a rule.
        """
        instance = access.instance(self.actor, instance_id)
        question = AccessQuestion(**self.query_parts())
        return self.one(selectors.access_decision(instance, question), s.AccessOut)

    def query_parts(self) -> dict[str, str]:
        """Returns the fields of the query, with the host in the form in which brokers store addresses.

        Raises `Invalid` for an operation that the resource type does not have, and for a wrong address.
        """
        parts = {name: str(self.query[name]) for name in AccessQuestion.__dataclass_fields__}
        if parts["operation"] not in OPERATIONS_OF[parts["resource_type"]]:
            raise _parameter_error(
                "operation", "Kafka never asks for this of such a resource.", "unsupported_operation"
            )
        try:
            return {**parts, "host": address_of(parts["host"])}
        except ValueError:
            raise _parameter_error("host", "Use one IP address, or leave it out.", "invalid_address") from None


def _parameter_error(parameter: str, detail: str, code: str) -> Invalid:
    return Invalid(detail, errors=[FieldError(parameter=parameter, detail=detail, code=code)])


def _key(rule: AclRule) -> str:
    """Returns the sort key of a rule, by resource. Page tokens contain it: a long name is truncated, and a hash of the
    rule keeps the key unique.
    """
    parts = astuple(rule)
    prefix = f"{rule.resource_type} {rule.resource_name}"[:KEY_CHARS_MAX]
    return f"{prefix} {hashlib.sha256(repr(parts).encode()).hexdigest()}"
