"""In-memory users and access rules. The real code decides on rules."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace

from brokers.dataplane.acls import KafkaAclAdminClient
from brokers.dataplane.admin_client import domain_error_of
from brokers.dataplane.users import ALREADY_THERE
from instances.acls.constants import ANY, LITERAL, MATCH, PREFIXED, WILDCARD
from instances.acls.interfaces import AccessDecision, AccessQuestion, AclFilter, AclRule
from instances.interfaces import BrokerUnresponsive
from instances.services.users import MECHANISMS
from instances.users.interfaces import NEVER, Presence, SecretDescription, UserChange, UserDescription, UserList
from tenants.errors import NotFound, OutcomeUnknown, Unavailable

CREATED_AT_MS = 1_790_000_000_000


@dataclass(slots=True)
class FakeUsers:
    """In-memory `instances.users.interfaces.UserAdminClient`, by (instance id, name). `passwords` are those that
    brokers never get.
    """

    users_by_key: dict[tuple[str, str], UserDescription] = field(default_factory=dict)
    passwords: dict[str, str] = field(default_factory=dict)
    silent: tuple[BrokerUnresponsive, ...] = ()
    is_down: bool = False
    silent_instances: set[str] = field(default_factory=set)
    # Changes have no effect, and their outcome is unknown to the caller.
    is_lost: bool = False

    def add(self, instance_id: str, name: str, **fields: object) -> UserDescription:
        """Adds a user, by default with one password that was used once."""
        defaults = {
            "name": name, "superuser": False, "disabled": False, "expires_at_ms": None, "created_at_ms": CREATED_AT_MS,
            "last_used_at_ms": CREATED_AT_MS + 60_000, "connections": 2, "secrets": (secret(f"sec-of-{name}"),),
        }  # fmt: skip
        self.users_by_key[instance_id, name] = user = UserDescription(**{**defaults, **fields})  # type: ignore[arg-type]
        return user

    def users(self, instance_id: str, names: Sequence[str] | None = None) -> UserList:
        self._require_up(instance_id)
        names_of_instance = sorted(
            name for owner, name in self.users_by_key if owner == instance_id and (names is None or name in names)
        )
        return UserList(
            users=tuple(self.users_by_key[instance_id, name] for name in names_of_instance), silent=self.silent
        )

    def user(self, instance_id: str, name: str) -> UserDescription:
        self._require_up(instance_id)
        if (instance_id, name) not in self.users_by_key:
            raise NotFound(f'There is no user "{name}".')
        return self.users_by_key[instance_id, name]

    def change(self, instance_id: str, change: UserChange, *, validate_only: bool) -> None:
        self._require_up(instance_id)
        key = instance_id, change.name
        existing = self.users_by_key.get(key)
        if existing is None and change.presence is Presence.REQUIRED:
            raise NotFound
        if existing is not None and change.presence is Presence.FORBIDDEN:
            raise domain_error_of(ALREADY_THERE, "There is such a user already; choose another name.")
        if validate_only:
            return
        if self.is_lost:
            raise OutcomeUnknown
        if change.is_deleted:
            del self.users_by_key[key]
            return
        user = existing or self.add(instance_id, change.name, last_used_at_ms=None, connections=0, secrets=())
        self.users_by_key[key] = replace(
            user,
            superuser=user.superuser if change.superuser is None else change.superuser,
            disabled=user.disabled if change.disabled is None else change.disabled,
            expires_at_ms=user.expires_at_ms if change.expires_at_ms is None else _none_if_never(change.expires_at_ms),
            secrets=tuple(
                [item for item in user.secrets if item.id not in change.removed_secrets]
                + [secret(item.id) for item in change.added_secrets]
            ),
        )
        self.passwords |= {item.id: item.password for item in change.added_secrets}

    def _require_up(self, instance_id: str) -> None:
        if self.is_down or instance_id in self.silent_instances:
            raise Unavailable("No broker of the instance answers.", retry_after_s=1)


def secret(name: str, last_used_at_ms: int | None = None) -> SecretDescription:
    return SecretDescription(
        id=name, created_at_ms=CREATED_AT_MS, last_used_at_ms=last_used_at_ms, mechanisms=MECHANISMS
    )


def _none_if_never(at_ms: int) -> int | None:
    return None if at_ms == NEVER else at_ms


@dataclass(slots=True)
class FakeAcls:
    """In-memory `instances.acls.interfaces.AclAdminClient`, by instance."""

    rules_by_instance: dict[str, set[AclRule]] = field(default_factory=dict)
    is_lost: bool = False

    def rules(self, instance_id: str, acl_filter: AclFilter) -> Sequence[AclRule]:
        return [rule for rule in self.rules_by_instance.get(instance_id, ()) if is_matched(rule, acl_filter)]

    def create(self, instance_id: str, rules: Sequence[AclRule]) -> None:
        if self.is_lost:
            raise OutcomeUnknown
        self.rules_by_instance.setdefault(instance_id, set()).update(rules)

    def delete(self, instance_id: str, acl_filters: Sequence[AclFilter]) -> Sequence[AclRule]:
        if self.is_lost:
            raise OutcomeUnknown
        rules = self.rules_by_instance.get(instance_id, set())
        matches = {rule for rule in rules for acl_filter in acl_filters if is_matched(rule, acl_filter)}
        rules -= matches
        return sorted(matches)

    def decide(
        self, rules: Sequence[AclRule], question: AccessQuestion, *, is_superuser: bool, allow_everyone: bool
    ) -> AccessDecision:
        return KafkaAclAdminClient().decide(rules, question, is_superuser=is_superuser, allow_everyone=allow_everyone)


def is_matched(rule: AclRule, acl_filter: AclFilter) -> bool:
    """True if a filter matches a rule (KIP-290)."""
    exact_fields = ("principal", "host")
    if any(getattr(acl_filter, name) not in (None, getattr(rule, name)) for name in exact_fields):
        return False
    if any(
        getattr(acl_filter, name) not in (ANY, getattr(rule, name))
        for name in ("resource_type", "operation", "permission")
    ):
        return False
    if acl_filter.pattern_type == MATCH and acl_filter.resource_name is not None:
        if rule.pattern_type == PREFIXED:
            return acl_filter.resource_name.startswith(rule.resource_name)
        return rule.pattern_type == LITERAL and rule.resource_name in (acl_filter.resource_name, WILDCARD)
    return acl_filter.pattern_type in (ANY, MATCH, rule.pattern_type) and acl_filter.resource_name in (
        None,
        rule.resource_name,
    )


def rule(principal: str = "User:alice", operation: str = "read", **parts: str) -> AclRule:
    """Returns a rule, by default that alice may read the topic orders from anywhere."""
    defaults = {
        "resource_type": "topic", "resource_name": "orders", "pattern_type": "literal", "host": "*",
        "permission": "allow",
    }  # fmt: skip
    return AclRule(principal=principal, operation=operation, **{**defaults, **parts})
