"""Which access control list decides about an operation, as Apache Kafka 3.9's StandardAuthorizer does. Pure.

A denying entry wins over all that allow. Without any entry about the resource, of whomever, `allow_everyone` decides;
a super user is asked nothing.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from enum import StrEnum
from typing import Final

from brokers.contract.acls import (
    ANY_HOST,
    USER_PREFIX,
    WILDCARD,
    AclDocument,
    AclEntry,
    AclOperation,
    PatternType,
    Permission,
    ResourcePattern,
    ResourceType,
)

EVERYBODY: Final = USER_PREFIX + WILDCARD
# What is allowed with an operation; nothing is denied with another one.
IMPLIED: Final = {
    AclOperation.DESCRIBE: frozenset({AclOperation.READ, AclOperation.WRITE, AclOperation.DELETE, AclOperation.ALTER}),
    AclOperation.DESCRIBE_CONFIGS: frozenset({AclOperation.ALTER_CONFIGS}),
}


class Reason(StrEnum):
    """Why it is allowed or not."""

    SUPERUSER = "superuser"
    ALLOWED_BY_RULE = "allowed_by_rule"
    DENIED_BY_RULE = "denied_by_rule"
    # The resource has entries, and none allows this.
    NOT_ALLOWED = "not_allowed"
    # The resource has no entry at all: the instance's setting decides.
    NO_RULES_ALLOWED = "no_rules_allowed"
    NO_RULES_DENIED = "no_rules_denied"


@dataclass(frozen=True, slots=True, kw_only=True)
class Question:
    """May `principal` (as `User:alice`), connected from `host`, do `operation` on a resource?"""

    principal: str
    host: str
    operation: AclOperation
    resource_type: ResourceType
    resource_name: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Decision:
    """`pattern` and `entry` are the rule that decided, where one did."""

    allowed: bool
    reason: Reason
    pattern: ResourcePattern | None = None
    entry: AclEntry | None = None


def decide(
    documents: Iterable[AclDocument], question: Question, *, is_superuser: bool, allow_everyone: bool
) -> Decision:
    """What the authorizer of a broker would answer. Documents of other resources may be among those given."""
    if is_superuser:
        return Decision(allowed=True, reason=Reason.SUPERUSER)
    rules = [
        (document.pattern, entry)
        for document in sorted(
            (item for item in documents if covers(item.pattern, question.resource_type, question.resource_name)),
            key=lambda document: _nearness(document.pattern),
        )
        for entry in sorted(document.entries)
    ]
    if not rules:
        reason = Reason.NO_RULES_ALLOWED if allow_everyone else Reason.NO_RULES_DENIED
        return Decision(allowed=allow_everyone, reason=reason)
    allowing = None
    for pattern, entry in rules:
        if not is_about(entry, question):
            continue
        if entry.permission is Permission.DENY:
            return Decision(allowed=False, reason=Reason.DENIED_BY_RULE, pattern=pattern, entry=entry)
        allowing = allowing or (pattern, entry)
    if allowing is None:
        return Decision(allowed=False, reason=Reason.NOT_ALLOWED)
    return Decision(allowed=True, reason=Reason.ALLOWED_BY_RULE, pattern=allowing[0], entry=allowing[1])


def covers(pattern: ResourcePattern, resource_type: ResourceType, name: str) -> bool:
    """Whether a pattern is about a resource: by its name, a beginning of it, or `*`."""
    if pattern.resource_type is not resource_type:
        return False
    if pattern.pattern_type is PatternType.PREFIXED:
        return name.startswith(pattern.name)
    return pattern.name in (name, WILDCARD)


def is_about(entry: AclEntry, question: Question) -> bool:
    """Whether an entry speaks of this principal, from this host, and of this operation."""
    if entry.principal not in (question.principal, EVERYBODY) or entry.host not in (question.host, ANY_HOST):
        return False
    if entry.operation in (question.operation, AclOperation.ALL):
        return True
    implied = IMPLIED.get(question.operation, frozenset())
    return entry.permission is Permission.ALLOW and entry.operation in implied


def _nearness(pattern: ResourcePattern) -> tuple[int, int, str]:
    """The rule that is named is the one that says most about the resource: its name, the longest beginning, `*`."""
    if pattern.pattern_type is PatternType.PREFIXED:
        return 1, -len(pattern.name), pattern.name
    return (2, 0, "") if pattern.name == WILDCARD else (0, 0, pattern.name)
