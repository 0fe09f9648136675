"""DescribeUsers and AlterUsers, sent by the control plane (`messages.users`)."""

from __future__ import annotations

from functools import partial
from typing import Final

from brokers.contract import paths
from brokers.contract.users import UserDocument
from brokers.engine.cluster import errors
from brokers.engine.cluster.user_plans import (
    EITHER,
    EXPIRES_NEVER,
    EXPIRES_UNCHANGED,
    MUST_NOT_EXIST,
    UNCHANGED,
    AddedSecret,
    SaltedPassword,
    UserAlteration,
    altered,
)
from brokers.engine.handlers.auth.user_calls import (
    USERS_PER_REQUEST_MAX,
    Written,
    alter_user,
    may_administer_users,
    until_users_seen,
    users_of,
)
from brokers.engine.handlers.context import Call
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

NEVER: Final = -1


async def describe_users(call: Call, request: DescribeUsersRequest) -> DescribeUsersResponse:
    """Describes the users of an instance; users that do not exist are left out."""
    if call.view.instance is None or not may_administer_users(call):
        return DescribeUsersResponse(
            error_code=int(ErrorCode.INVALID_REQUEST), error_message="Users belong to an instance.", users=[]
        )
    users, time_slice = users_of(call), TimeSlice()
    if request.names is None:
        wanted = sorted(users.values(), key=lambda user: user.name)
    else:
        named = [users.get(paths.sanitise(name)) for name in request.names[:USERS_PER_REQUEST_MAX]]
        wanted = [user for user in named if user is not None]
    described = []
    for user in wanted:
        described.append(_described(call, user))
        await time_slice.pause()
    return DescribeUsersResponse(error_code=0, error_message=None, users=described)


def _described(call: Call, user: UserDocument) -> DescribedUser:
    authentication, instance_id = call.services.access.authentication, call.view.instance_id
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


async def alter_users(call: Call, request: AlterUsersRequest) -> AlterUsersResponse:
    results = []
    written: Written = {}
    time_slice = TimeSlice()
    for number, alteration in enumerate(request.alterations):
        code, message = 0, None
        try:
            if number >= USERS_PER_REQUEST_MAX:
                raise errors.Refused(f"At most {USERS_PER_REQUEST_MAX} users in one request.")
            if not may_administer_users(call):
                raise errors.Refused("Only the control plane makes this call.")
            change = partial(
                altered, alteration.name, alteration=_parsed(alteration), now_ms=call.services.clock.now_ms()
            )
            await alter_user(call, alteration.name, change, validate_only=request.validate_only, written=written)
        except errors.ClusterError as failure:
            code, message = failure.wire_code, str(failure)
        results.append(AlteredUserResult(name=alteration.name, error_code=code, error_message=message))
        await time_slice.pause()
    await until_users_seen(call, written)
    return AlterUsersResponse(results=results)


def _parsed(alteration: AlteredUser) -> UserAlteration:
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
        added_secrets=tuple(map(_added, alteration.added_secrets)),
    )


def _added(secret: AddedUserSecret) -> AddedSecret:
    return AddedSecret(
        id=secret.id,
        verifiers=tuple(
            SaltedPassword(
                mechanism=verifier.mechanism,
                iterations=verifier.iterations,
                salt=bytes(verifier.salt),
                salted_password=bytes(verifier.salted_password),
            )
            for verifier in secret.verifiers
        ),
    )
