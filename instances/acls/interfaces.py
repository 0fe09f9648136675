"""Access rules as instances needs them of the app above, as a port `brokers` plugs. They live in ZooKeeper alone."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

from instances.acls.words import ANY
from tenants.cached_values import cacheable
from tenants.interfaces import Interface


@cacheable
@dataclass(frozen=True, slots=True, kw_only=True, order=True)
class AclRule:
    """One access control list entry of Kafka's: a principal may or may not do something to a resource, from a host."""

    resource_type: str
    resource_name: str
    pattern_type: str
    principal: str
    host: str
    operation: str
    permission: str


@dataclass(frozen=True, slots=True, kw_only=True)
class AclFilter:
    """Which rules are meant; what is None or `any` does not matter. The pattern type `match` means every rule that has
    a say about the resource of that name.
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
    """May this principal, connected from this host, do this?"""

    principal: str
    host: str
    operation: str
    resource_type: str
    resource_name: str


@dataclass(frozen=True, slots=True, kw_only=True)
class AccessDecision:
    """`rule` is the one that decided, where one did; `reason` says how (`brokers.contract.acl_decisions.Reason`)."""

    allowed: bool
    reason: str
    rule: AclRule | None


class AclAdminClient(Protocol):
    """The admin client to access rules, as the instance's owner.

    All that ask raise `tenants.errors.Unavailable` when no broker answers in time; changes raise what the refusal
    means.
    """

    def rules(self, instance_id: str, wanted: AclFilter) -> Sequence[AclRule]: ...

    def create(self, instance_id: str, rules: Sequence[AclRule]) -> None:
        """All of them; one that is there already stays. Raises where one is refused: others may have been made."""
        ...

    def delete(self, instance_id: str, wanted: Sequence[AclFilter]) -> Sequence[AclRule]:
        """Those that one of the filters means; returns what is gone."""
        ...

    def decide(
        self, rules: Sequence[AclRule], question: AccessQuestion, *, is_superuser: bool, allow_everyone: bool
    ) -> AccessDecision:
        """What a broker would answer with these rules. Asks nobody."""
        ...


acl_admin_client: Interface[AclAdminClient] = Interface("instances.acls.interfaces.acl_admin_client")
