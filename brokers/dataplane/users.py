"""Implements `instances.users.interfaces.user_admin_client` with DescribeUsers and AlterUsers, which are Penstock's own
calls.

Every broker knows all users, but only its own connections and their last uses there. So all brokers are queried, the
connections are added up, and the latest use counts.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from django.utils.translation import gettext_noop

from brokers.contract.users import MECHANISM_NAMES
from brokers.dataplane.admin_client import ask_as_instance, change, cluster_of, require_ok
from brokers.dataplane.scatter import scatter, targets
from brokers.dataplane.scram import salted_passwords
from brokers.dataplane.user_messages import VERSION, AlterUsersRequest, DescribeUsersRequest
from instances.interfaces import BrokerUnresponsive
from instances.users.interfaces import NewSecret, SecretDescription, UserChange, UserDescription, UserList
from tenants.errors import Message, NotFound, OutcomeUnknown, Unavailable

TIMED_OUT, NO_SUCH_USER, ALREADY_THERE = 7, 91, 92
UNCHANGED = -1
EXPIRY_UNCHANGED = -2
UNKNOWN_MS = -1


class KafkaUserAdminClient:
    """Implements `instances.users.interfaces.UserAdminClient`."""

    def users(self, instance_id: str, names: Sequence[str] | None = None) -> UserList:
        users, silent = _described(instance_id, names)
        return UserList(users=tuple(sorted(users, key=lambda user: user.name)), silent=silent)

    def user(self, instance_id: str, name: str) -> UserDescription:
        users, _ = _described(instance_id, [name])
        for user in users:
            if user.name == name:
                return user
        raise NotFound(Message(gettext_noop('There is no user "%(name)s".'), name=name))

    def change(self, instance_id: str, wanted: UserChange, *, validate_only: bool) -> None:
        request = AlterUsersRequest(
            validate_only=validate_only, alterations=[_alteration(instance_id, wanted)], version=VERSION
        )
        if validate_only:
            (result,) = ask_as_instance(instance_id, request).results
            require_ok(result.error_code, result.error_message)
            return
        answer, may_be_done = change(instance_id, request)
        (result,) = answer.results
        if result.error_code == TIMED_OUT:
            raise OutcomeUnknown
        if may_be_done and result.error_code in (NO_SUCH_USER, ALREADY_THERE):
            if wanted.is_deleted:
                return  # already deleted when a try is repeated: the previous try was carried out
            raise OutcomeUnknown  # the user may be the previous try's, or may have existed before
        require_ok(result.error_code, result.error_message)


def _alteration(instance_id: str, wanted: UserChange) -> Any:
    return AlterUsersRequest.UserAlteration(
        name=wanted.name,
        is_deleted=wanted.is_deleted,
        must_exist=wanted.presence.value,
        superuser=UNCHANGED if wanted.superuser is None else int(wanted.superuser),
        disabled=UNCHANGED if wanted.disabled is None else int(wanted.disabled),
        expires_at_ms=EXPIRY_UNCHANGED if wanted.expires_at_ms is None else wanted.expires_at_ms,
        removed_secrets=list(wanted.removed_secrets),
        added_secrets=[_added(instance_id, wanted.name, secret) for secret in wanted.added_secrets],
    )


def _added(instance_id: str, name: str, secret: NewSecret) -> Any:
    secret_class = AlterUsersRequest.UserAlteration.AddedSecret
    salted = salted_passwords(instance_id, name, secret.password)
    verifiers = [secret_class.AddedVerifier(**verifier._asdict()) for verifier in salted]
    return secret_class(id=secret.id, verifiers=verifiers)


def _described(
    instance_id: str, names: Sequence[str] | None
) -> tuple[list[UserDescription], tuple[BrokerUnresponsive, ...]]:
    """Returns the users with these names, or all users if `names` is None, and the brokers that did not answer.

    Raises `Unavailable` if no broker answers.
    """
    wanted = None if names is None else list(names)
    brokers = targets(cluster_of(instance_id), instance_id).values()
    result = scatter([(target, DescribeUsersRequest(names=wanted, version=VERSION)) for target in brokers])
    good = [answer for _, answer in result.answers if not answer.error_code]
    if not good:
        for _, answer in result.answers:
            require_ok(answer.error_code, answer.error_message)
        raise Unavailable("No broker of the instance answers at the moment. Nothing is lost.", retry_after_s=1)
    return merged([answer.users for answer in good]), result.silent


def merged(answers: Iterable[Iterable[Any]]) -> list[UserDescription]:
    """Returns one description of each user, merged from the brokers' answers. A broker may not know a recent change
    yet: where answers differ, the first broker that knows the user wins.
    """
    by_name: dict[str, list[Any]] = {}
    for users in answers:
        for user in users:
            by_name.setdefault(user.name, []).append(user)
    return [_user(described) for described in by_name.values()]


def _user(described: Sequence[Any]) -> UserDescription:
    first = described[0]
    used: dict[str, int] = {}
    for user in described:
        for secret in user.secrets:
            used[secret.id] = max(used.get(secret.id, UNKNOWN_MS), secret.last_used_at_ms)
    return UserDescription(
        name=first.name,
        superuser=bool(first.superuser),
        disabled=bool(first.disabled),
        expires_at_ms=_instant(first.expires_at_ms),
        created_at_ms=first.created_at_ms,
        last_used_at_ms=_instant(max(user.last_used_at_ms for user in described)),
        connections=sum(user.connections for user in described),
        secrets=tuple(sorted((_secret(secret, used) for secret in first.secrets), key=_age)),
    )


def _secret(secret: Any, used: Mapping[str, int]) -> SecretDescription:
    return SecretDescription(
        id=secret.id,
        created_at_ms=secret.created_at_ms,
        last_used_at_ms=_instant(used[secret.id]),
        mechanisms=tuple(MECHANISM_NAMES.get(number, str(number)) for number in sorted(secret.mechanisms)),
    )


def _age(secret: SecretDescription) -> tuple[int, str]:
    return secret.created_at_ms, secret.id


def _instant(at_ms: int) -> int | None:
    return None if at_ms < 0 else at_ms
