"""Access rules of an instance as an interface that `brokers` implements. The rules are stored in ZooKeeper only."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

from instances.acls.constants import ANY
from tenants.cached_values import cacheable
from tenants.interfaces import Interface


@cacheable
@dataclass(frozen=True, slots=True, kw_only=True, order=True)
class AclRule:
    """One entry of a Kafka access control list: a principal may or may not do something to a resource, from a host."""

    resource_type: str
    resource_name: str
    pattern_type: str
    principal: str
    host: str
    operation: str
    permission: str


@dataclass(frozen=True, slots=True, kw_only=True)
class AclFilter:
    """A filter of rules; None and `any` match everything. The pattern type `match` selects every rule that applies to
    the resource of that name.
    """

    resource_type: str = ANY
    resource_name: str | None = None
    pattern_type: str = ANY
    principal: str | None = None
    host: str | None = None
    operation: str = ANY
    permission: str = ANY


@dataclass(frozen=True, slots=True, kw_only=True)
class AccessQuestion:
    """Query whether a principal that connects from a host may do an operation on a resource."""

    principal: str
    host: str
    operation: str
    resource_type: str
    resource_name: str


@dataclass(frozen=True, slots=True, kw_only=True)
class AccessDecision:
    """Answer to an `AccessQuestion`. `rule` is the rule that decided, if any; `reason` is one of
    `brokers.contract.acl_decisions.DecisionReason`.
    """

    allowed: bool
    reason: str
    rule: AclRule | None


class AclAdminClient(Protocol):
    """The admin client for access rules, acting as the instance's owner.

    All methods that query brokers raise `tenants.errors.Unavailable` if no broker answers in time; changes raise the
    error that corresponds to the refusal.
    """

    def rules(self, instance_id: str, rule_filter: AclFilter) -> Sequence[AclRule]: ...

    def create(self, instance_id: str, rules: Sequence[AclRule]) -> None:
        """Creates all rules; existing ones stay. Raises the error of a refused rule; others may have been created."""
        ...

    def delete(self, instance_id: str, rule_filters: Sequence[AclFilter]) -> Sequence[AclRule]:
        """Deletes the rules that match a filter; returns the deleted ones."""
        ...

    def decide(
        self, rules: Sequence[AclRule], question: AccessQuestion, *, is_superuser: bool, allow_everyone: bool
    ) -> AccessDecision:
        """Returns the decision of a broker with these rules. Queries no broker."""
        ...


acl_admin_client: Interface[AclAdminClient] = Interface("instances.acls.interfaces.acl_admin_client")
