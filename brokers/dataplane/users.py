"""Implementation of `instances.users.interfaces.user_admin_client` by DescribeUsers and AlterUsers, Penstock's own
calls.

Every broker knows all users, but only its own connections and the last use of a user there. All brokers are therefore
queried; connections are added up, and the latest use is returned.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from django.utils.translation import gettext_noop

from brokers.contract.users import MECHANISM_NAMES
from brokers.dataplane.admin_client import cluster_of, require_ok, send_as_instance, send_change
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
        users, silent = _describe_users(instance_id, names)
        return UserList(users=tuple(sorted(users, key=lambda user: user.name)), silent=silent)

    def user(self, instance_id: str, name: str) -> UserDescription:
        users, _ = _describe_users(instance_id, [name])
        for user in users:
            if user.name == name:
                return user
        raise NotFound(Message(gettext_noop('There is no user "%(name)s".'), name=name))

    def change(self, instance_id: str, user_change: UserChange, *, validate_only: bool) -> None:
        request = AlterUsersRequest(
            validate_only=validate_only, alterations=[_alteration(instance_id, user_change)], version=VERSION
        )
        if validate_only:
            (result,) = send_as_instance(instance_id, request).results
            require_ok(result.error_code, result.error_message)
            return
        response, may_be_executed = send_change(instance_id, request)
        (result,) = response.results
        if result.error_code == TIMED_OUT:
            raise OutcomeUnknown
        if may_be_executed and result.error_code in (NO_SUCH_USER, ALREADY_THERE):
            if user_change.is_deleted:
                return  # an earlier attempt has deleted the user
            raise OutcomeUnknown  # the user may be from an earlier attempt, or may have existed before
        require_ok(result.error_code, result.error_message)


def _alteration(instance_id: str, user_change: UserChange) -> Any:
    return AlterUsersRequest.UserAlteration(
        name=user_change.name,
        is_deleted=user_change.is_deleted,
        must_exist=user_change.presence.value,
        superuser=UNCHANGED if user_change.superuser is None else int(user_change.superuser),
        disabled=UNCHANGED if user_change.disabled is None else int(user_change.disabled),
        expires_at_ms=EXPIRY_UNCHANGED if user_change.expires_at_ms is None else user_change.expires_at_ms,
        removed_secrets=list(user_change.removed_secrets),
        added_secrets=[_added_secret(instance_id, user_change.name, secret) for secret in user_change.added_secrets],
    )


def _added_secret(instance_id: str, name: str, secret: NewSecret) -> Any:
    secret_class = AlterUsersRequest.UserAlteration.AddedSecret
    salted = salted_passwords(instance_id, name, secret.password)
    verifiers = [secret_class.AddedVerifier(**verifier._asdict()) for verifier in salted]
    return secret_class(id=secret.id, verifiers=verifiers)


def _describe_users(
    instance_id: str, names: Sequence[str] | None
) -> tuple[list[UserDescription], tuple[BrokerUnresponsive, ...]]:
    """Returns the users with these names, or all users if `names` is None, and the brokers that did not answer.

    Raises `Unavailable` if no broker answers.
    """
    requested_names = None if names is None else list(names)
    brokers = targets(cluster_of(instance_id), instance_id).values()
    result = scatter([(target, DescribeUsersRequest(names=requested_names, version=VERSION)) for target in brokers])
    successful = [response for _, response in result.responses if not response.error_code]
    if not successful:
        for _, response in result.responses:
            require_ok(response.error_code, response.error_message)
        raise Unavailable("No broker of the instance answers at the moment. Nothing is lost.", retry_after_s=1)
    return merge_responses([response.users for response in successful]), result.silent


def merge_responses(responses: Iterable[Iterable[Any]]) -> list[UserDescription]:
    """Returns one description of each user, merged from the users in each broker's response.

    A broker may not know a recent change yet. Where responses differ, the first one with the user is used.
    """
    descriptions_by_name: dict[str, list[Any]] = {}
    for users in responses:
        for user in users:
            descriptions_by_name.setdefault(user.name, []).append(user)
    return [_merge_descriptions(descriptions) for descriptions in descriptions_by_name.values()]


def _merge_descriptions(descriptions: Sequence[Any]) -> UserDescription:
    newest = descriptions[0]
    last_used_ms: dict[str, int] = {}
    for user in descriptions:
        for secret in user.secrets:
            last_used_ms[secret.id] = max(last_used_ms.get(secret.id, UNKNOWN_MS), secret.last_used_at_ms)
    return UserDescription(
        name=newest.name,
        superuser=bool(newest.superuser),
        disabled=bool(newest.disabled),
        expires_at_ms=_ms_or_none(newest.expires_at_ms),
        created_at_ms=newest.created_at_ms,
        last_used_at_ms=_ms_or_none(max(user.last_used_at_ms for user in descriptions)),
        connections=sum(user.connections for user in descriptions),
        secrets=tuple(sorted((_secret(secret, last_used_ms) for secret in newest.secrets), key=_age_key)),
    )


def _secret(secret: Any, last_used_ms: Mapping[str, int]) -> SecretDescription:
    return SecretDescription(
        id=secret.id,
        created_at_ms=secret.created_at_ms,
        last_used_at_ms=_ms_or_none(last_used_ms[secret.id]),
        mechanisms=tuple(MECHANISM_NAMES.get(mechanism, str(mechanism)) for mechanism in sorted(secret.mechanisms)),
    )


def _age_key(secret: SecretDescription) -> tuple[int, str]:
    return secret.created_at_ms, secret.id


def _ms_or_none(at_ms: int) -> int | None:
    return None if at_ms < 0 else at_ms
