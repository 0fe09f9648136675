"""DescribeUsers and AlterUsers, sent by the control plane (`messages.users`), and the changes of users that they share
with `scram_credentials`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from typing import Any, Final

from brokers.contract import paths
from brokers.contract.acls import ResourceType
from brokers.contract.users import UserDocument
from brokers.engine.access.principals import ANONYMOUS
from brokers.engine.cluster import errors
from brokers.engine.cluster.user_plans import (
    EITHER,
    EXPIRES_NEVER,
    EXPIRES_UNCHANGED,
    MUST_NOT_EXIST,
    UNCHANGED,
    AddedSecret,
    Change,
    SaltedPassword,
    UserAlteration,
    altered,
)
from brokers.engine.handlers.context import RequestContext
from brokers.engine.handlers.topics.topics import ResourceError
from brokers.engine.handlers.zookeeper_change import APPLIED_S_MAX, zookeeper_change
from brokers.engine.protocol.errors import ErrorCode
from brokers.engine.protocol.messages.users import (
    AddedUserSecret,
    AlteredUser,
    AlteredUserResult,
    AlterUsersRequest,
    AlterUsersResponse,
    DescribedSecret,
    DescribedUser,
    DescribeUsersRequest,
    DescribeUsersResponse,
)
from brokers.engine.scheduling.time_slice import TimeSlice

# Maximum number of users in one request: the most that an instance may have.
USERS_PER_REQUEST_MAX: Final = 1_000
# Documents as written, by node name; None if removed.
Written = dict[str, UserDocument | None]
NEVER: Final = -1


def may_administer_users(context: RequestContext) -> bool:
    """True for the owner, superusers, and users with the call's right on the cluster, DESCRIBE or ALTER (KIP-554)."""
    return context.view.principal.internal or not context.denial(ResourceType.CLUSTER)


def may_set_secrets_of(context: RequestContext, name: str) -> bool:
    """True if the caller may set this user's secrets; only the owner and superusers set those of a superuser, so that
    nobody can become one by setting its password.
    """
    user, principal = users_of(context).get(paths.sanitise(name)), context.view.principal
    if user is None or not user.superuser or principal.internal:
        return True
    acting = None if principal.user == ANONYMOUS else users_of(context).get(paths.sanitise(principal.user))
    return acting is not None and acting.superuser


def users_of(context: RequestContext) -> Mapping[str, UserDocument]:
    """Returns the current users of the instance, by node name: a long call outlives its view."""
    instance_id = context.view.instance_id
    return {} if instance_id is None else context.services.metadata.current.image.users.of_instance(instance_id)


async def alter_user(
    context: RequestContext,
    name: str,
    change: Change,
    check: Callable[[RequestContext, str], None],
    *,
    validate_only: bool,
    written: Written,
) -> None:
    """Alters a user in the instance's turn, and charges the instance; adds the result to `written`.

    Raises:
        errors.ClusterError: nothing was changed.
        ResourceError: `check` raised it: the caller has not the right to this change, or lost it during the wait.
    """
    check(context, name)
    instance_id, services = context.view.instance_id, context.services
    if instance_id is None or context.view.instance is None:
        raise errors.Refused("Users belong to an instance.")
    # A change that fails on the present metadata is not tried: it would cost the instance a turn.
    await services.metadata.store.alter_user(
        services.metadata.current.image, instance_id=instance_id, name=name, change=change, validate_only=True
    )
    if validate_only:
        return
    async with zookeeper_change(context, 1):
        check(context, name)
        written[paths.sanitise(name)] = await services.metadata.store.alter_user(
            services.metadata.current.image, instance_id=instance_id, name=name, change=change
        )


async def wait_until_users_applied(context: RequestContext, written: Written) -> None:
    """Waits until the metadata has the written users, for a limited time, since a later change may replace them."""
    instance_id = context.view.instance_id
    if instance_id is None or not written:
        return
    await context.services.metadata.current.wait_until(
        lambda image: all(image.users.of_instance(instance_id).get(node) == user for node, user in written.items()),
        APPLIED_S_MAX,
    )


def _check_control_plane(context: RequestContext, _name: str) -> None:
    """Raises ResourceError for a caller outside the internal listener. These calls require no right that a tenant could
    have, and set what no tenant may: who is a superuser.
    """
    if not context.view.principal.internal:
        raise ResourceError(ErrorCode.INVALID_REQUEST, "Only the control plane makes this call.")


async def describe_users(context: RequestContext, request: DescribeUsersRequest) -> DescribeUsersResponse:
    """Describes the users of an instance; users that do not exist are left out."""
    if context.view.instance is None or not context.view.principal.internal:
        return DescribeUsersResponse(
            error_code=int(ErrorCode.INVALID_REQUEST), error_message="Users belong to an instance.", users=[]
        )
    users, time_slice = users_of(context), TimeSlice()
    if request.names is None:
        selected_users = sorted(users.values(), key=lambda user: user.name)
    else:
        found_users = [users.get(paths.sanitise(name)) for name in request.names[:USERS_PER_REQUEST_MAX]]
        selected_users = [user for user in found_users if user is not None]
    descriptions = []
    for user in selected_users:
        descriptions.append(_describe(context, user))
        await time_slice.pause()
    return DescribeUsersResponse(error_code=0, error_message=None, users=descriptions)


def _describe(context: RequestContext, user: UserDocument) -> DescribedUser:
    authentication, instance_id = context.services.access.authentication, context.view.instance_id
    assert instance_id is not None, "checked by the caller"
    last_used_ms = authentication.last_used_ms(instance_id, user.name)
    return DescribedUser(
        name=user.name,
        superuser=user.superuser,
        disabled=user.disabled,
        expires_at_ms=NEVER if user.expires_at_ms is None else user.expires_at_ms,
        created_at_ms=user.created_at_ms,
        last_used_at_ms=max(last_used_ms.values(), default=NEVER),
        connections=authentication.logins.count(instance_id, user.name),
        secrets=[
            DescribedSecret(
                id=secret.id,
                created_at_ms=secret.created_at_ms,
                last_used_at_ms=last_used_ms.get(secret.id, NEVER),
                mechanisms=sorted(verifier.mechanism for verifier in secret.verifiers),
            )
            for secret in user.secrets
        ],
    )


async def alter_users(context: RequestContext, request: AlterUsersRequest) -> AlterUsersResponse:
    results = []
    written: Written = {}
    time_slice = TimeSlice()
    for number, alteration in enumerate(request.alterations):
        code, message = 0, None
        try:
            if number >= USERS_PER_REQUEST_MAX:
                raise errors.Refused(f"At most {USERS_PER_REQUEST_MAX} users in one request.")
            change = partial(
                altered,
                alteration.name,
                alteration=_parse_alteration(alteration),
                now_ms=context.services.clock.now_ms(),
            )
            await alter_user(
                context,
                alteration.name,
                change,
                _check_control_plane,
                validate_only=request.validate_only,
                written=written,
            )
        except ResourceError as error:
            code, message = error.code, str(error)
        except errors.ClusterError as failure:
            code, message = failure.wire_code, str(failure)
        results.append(AlteredUserResult(name=alteration.name, error_code=code, error_message=message))
        await time_slice.pause()
    await wait_until_users_applied(context, written)
    return AlterUsersResponse(results=results)


def _parse_alteration(alteration: AlteredUser) -> UserAlteration:
    """Returns the alteration. Raises errors.Refused if a value has no meaning."""
    if not EITHER <= alteration.must_exist <= MUST_NOT_EXIST:
        raise errors.Refused(f"must_exist is {EITHER} to {MUST_NOT_EXIST}, not {alteration.must_exist}.")
    for name, value in (("superuser", alteration.superuser), ("disabled", alteration.disabled)):
        if not UNCHANGED <= value <= 1:
            raise errors.Refused(f"{name} is -1, 0 or 1, not {value}.")
    if alteration.expires_at_ms < 0 and alteration.expires_at_ms not in (EXPIRES_UNCHANGED, EXPIRES_NEVER):
        raise errors.Refused("expires_at_ms is a time, -1 or -2.")
    return UserAlteration(
        is_deleted=alteration.is_deleted,
        must_exist=alteration.must_exist,
        superuser=alteration.superuser,
        disabled=alteration.disabled,
        expires_at_ms=alteration.expires_at_ms,
        removed_secrets=tuple(alteration.removed_secrets),
        added_secrets=tuple(map(_added_secret, alteration.added_secrets)),
    )


def _added_secret(secret: AddedUserSecret) -> AddedSecret:
    return AddedSecret(
        id=secret.id,
        verifiers=tuple(map(salted_password, secret.verifiers)),
    )


def salted_password(credential: Any) -> SaltedPassword:
    """Returns the salted password of a request: that of an added secret, or of an upserted credential."""
    return SaltedPassword(
        mechanism=credential.mechanism,
        iterations=credential.iterations,
        salt=bytes(credential.salt),
        salted_password=bytes(credential.salted_password),
    )
