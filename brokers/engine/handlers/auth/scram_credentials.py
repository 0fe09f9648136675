"""DescribeUserScramCredentials and AlterUserScramCredentials (KIP-554) for an instance's users, with Kafka's responses.

Kafka's users have one credential for each mechanism. An upsertion is therefore a new secret, and all other secrets
lose that mechanism.
"""

from __future__ import annotations

import secrets
from collections import Counter
from dataclasses import dataclass, field
from functools import partial
from typing import Final

from brokers.contract import paths
from brokers.contract.users import ITERATIONS_MAX, ITERATIONS_MIN, MECHANISM_NAMES, UserDocument
from brokers.engine.cluster import errors
from brokers.engine.cluster.user_plans import verifier_of, verifiers_of, with_scram_credentials
from brokers.engine.handlers.auth.users import (
    USERS_PER_REQUEST_MAX,
    Written,
    alter_user,
    may_administer_users,
    may_set_secrets_of,
    salted_password,
    users_of,
    wait_until_users_applied,
)
from brokers.engine.handlers.context import RequestContext
from brokers.engine.handlers.topics.topics import ResourceError
from brokers.engine.protocol.errors import ErrorCode
from brokers.engine.protocol.messages.scram import (
    AlterUserScramCredentialsRequest,
    AlterUserScramCredentialsResponse,
    AlterUserScramCredentialsResult,
    DescribeUserScramCredentialsRequest,
    DescribeUserScramCredentialsResponse,
    DescribeUserScramCredentialsResult,
    ScramCredentialInfo,
    ScramCredentialUpsertion,
)
from brokers.engine.scheduling.time_slice import TimeSlice

# Kafka's message of a result without an error.
NO_MESSAGE: Final = ""
NO_RIGHT: Final = "Cluster authorization failed."
NO_NAME: Final = "Username must not be empty"
UNKNOWN_MECHANISM: Final = "Unknown SCRAM mechanism"
TOO_FEW: Final = "Too few iterations"
TOO_MANY: Final = "Too many iterations"
TWICE: Final = "A user credential cannot be altered twice in the same request"
_SECRET_ID_BYTES: Final = 4


# -- describe ---------------------------------------------------------------------------------------------------------


async def describe_user_scram_credentials(
    context: RequestContext, request: DescribeUserScramCredentialsRequest
) -> DescribeUserScramCredentialsResponse:
    if not may_administer_users(context):
        return DescribeUserScramCredentialsResponse(
            error_code=int(ErrorCode.CLUSTER_AUTHORIZATION_FAILED),
            error_message=NO_RIGHT,
            results=[],
        )
    users, time_slice = users_of(context), TimeSlice()
    results = []
    if not request.users:
        for user in sorted(users.values(), key=lambda user: user.name):
            infos = _credential_infos(user)
            if infos:
                results.append(_describe(user.name, infos))
            await time_slice.pause()
    else:
        for name, count in Counter(user.name for user in request.users).items():
            results.append(_describe_user(name, count, users.get(paths.sanitise(name))))
            await time_slice.pause()
    return DescribeUserScramCredentialsResponse(error_code=0, error_message=NO_MESSAGE, results=results)


def _describe_user(name: str, count: int, user: UserDocument | None) -> DescribeUserScramCredentialsResult:
    if not name:
        return _error_result(name, ErrorCode.RESOURCE_NOT_FOUND, NO_NAME)
    if count > 1:
        message = f"Cannot describe SCRAM credentials for the same user twice in a single request: {name}"
        return _error_result(name, ErrorCode.DUPLICATE_RESOURCE, message)
    infos = [] if user is None else _credential_infos(user)
    if not infos:
        message = f"Attempt to describe a user credential that does not exist: {name}"
        return _error_result(name, ErrorCode.RESOURCE_NOT_FOUND, message)
    return _describe(name, infos)


def _credential_infos(user: UserDocument) -> list[ScramCredentialInfo]:
    """Returns one entry for each mechanism, that of the newer secret."""
    result = []
    for mechanism in MECHANISM_NAMES:
        verifiers = verifiers_of(user.secrets, mechanism)
        if verifiers:
            result.append(ScramCredentialInfo(mechanism=mechanism, iterations=verifiers[-1].iterations))
    return result


def _describe(name: str, infos: list[ScramCredentialInfo]) -> DescribeUserScramCredentialsResult:
    return DescribeUserScramCredentialsResult(user=name, error_code=0, error_message=NO_MESSAGE, credential_infos=infos)


def _error_result(name: str, code: ErrorCode, message: str) -> DescribeUserScramCredentialsResult:
    return DescribeUserScramCredentialsResult(
        user=name, error_code=int(code), error_message=message, credential_infos=[]
    )


# -- alter ------------------------------------------------------------------------------------------------------------


@dataclass(slots=True)
class _Alterations:
    """Alterations that a request has for one user."""

    deleted: list[int] = field(default_factory=list)
    upserted: list[ScramCredentialUpsertion] = field(default_factory=list)
    # The first error of the alterations.
    error: tuple[ErrorCode, str] | None = None

    def mechanisms(self) -> list[int]:
        return self.deleted + [upsertion.mechanism for upsertion in self.upserted]


async def alter_user_scram_credentials(
    context: RequestContext, request: AlterUserScramCredentialsRequest
) -> AlterUserScramCredentialsResponse:
    time_slice = TimeSlice()
    alterations_by_user = await _alterations_by_user(request, time_slice)
    may_administer = may_administer_users(context)
    results = []
    written: Written = {}
    for number, name in enumerate(list(alterations_by_user)):
        alterations = alterations_by_user.pop(name)  # thirty thousand at once would take milliseconds to free
        if not may_administer:
            alterations.error = ErrorCode.CLUSTER_AUTHORIZATION_FAILED, NO_RIGHT
        elif number >= USERS_PER_REQUEST_MAX:
            alterations.error = ErrorCode.INVALID_REQUEST, f"At most {USERS_PER_REQUEST_MAX} users in one request."
        results.append(await _alter(context, name, alterations, written))
        await time_slice.pause()
    await wait_until_users_applied(context, written)
    return AlterUserScramCredentialsResponse(results=results)


async def _alterations_by_user(
    request: AlterUserScramCredentialsRequest, time_slice: TimeSlice
) -> dict[str, _Alterations]:
    alterations_by_user: dict[str, _Alterations] = {}
    for deletion in request.deletions:
        alterations = alterations_by_user.setdefault(deletion.name, _Alterations())
        alterations.deleted.append(deletion.mechanism)
        alterations.error = alterations.error or _error_of_mechanism(deletion.name, deletion.mechanism)
        await time_slice.pause()
    for upsertion in request.upsertions:
        alterations = alterations_by_user.setdefault(upsertion.name, _Alterations())
        alterations.upserted.append(upsertion)
        alterations.error = alterations.error or _error_of_upsertion(upsertion)
        await time_slice.pause()
    for alterations in alterations_by_user.values():
        mechanisms = alterations.mechanisms()
        if alterations.error is None and len(set(mechanisms)) != len(mechanisms):
            alterations.error = ErrorCode.DUPLICATE_RESOURCE, TWICE
        await time_slice.pause()
    return alterations_by_user


def _error_of_mechanism(name: str, mechanism: int) -> tuple[ErrorCode, str] | None:
    if not name:
        return ErrorCode.UNACCEPTABLE_CREDENTIAL, NO_NAME
    if mechanism not in MECHANISM_NAMES:
        return ErrorCode.UNSUPPORTED_SASL_MECHANISM, UNKNOWN_MECHANISM
    return None


def _error_of_upsertion(upsertion: ScramCredentialUpsertion) -> tuple[ErrorCode, str] | None:
    error = _error_of_mechanism(upsertion.name, upsertion.mechanism)
    if error is not None:
        return error
    if upsertion.iterations > ITERATIONS_MAX:
        return ErrorCode.UNACCEPTABLE_CREDENTIAL, TOO_MANY
    if upsertion.iterations < ITERATIONS_MIN:
        return ErrorCode.UNACCEPTABLE_CREDENTIAL, TOO_FEW
    return None


async def _alter(
    context: RequestContext, name: str, alterations: _Alterations, written: Written
) -> AlterUserScramCredentialsResult:
    if alterations.error is not None:
        return _result(name, *alterations.error)
    try:
        change = partial(
            with_scram_credentials,
            name,
            deleted=frozenset(alterations.deleted),
            upserted=tuple(verifier_of(salted_password(upsertion)) for upsertion in alterations.upserted),
            secret_id=f"scram-{secrets.token_hex(_SECRET_ID_BYTES)}",
            now_ms=context.services.clock.now_ms(),
        )
        await alter_user(context, name, change, _check_right_to_alter, validate_only=False, written=written)
    except ResourceError as error:
        return AlterUserScramCredentialsResult(user=name, error_code=error.code, error_message=str(error))
    except errors.ClusterError as failure:
        return AlterUserScramCredentialsResult(user=name, error_code=failure.wire_code, error_message=str(failure))
    return AlterUserScramCredentialsResult(user=name, error_code=0, error_message=NO_MESSAGE)


def _check_right_to_alter(context: RequestContext, name: str) -> None:
    """Raises ResourceError if the caller may not, or may no longer, set this user's secrets."""
    if not may_administer_users(context):
        raise ResourceError(ErrorCode.CLUSTER_AUTHORIZATION_FAILED, NO_RIGHT)
    if not may_set_secrets_of(context, name):
        raise ResourceError(ErrorCode.CLUSTER_AUTHORIZATION_FAILED, "Only superusers set the secrets of a superuser.")


def _result(name: str, code: ErrorCode, message: str) -> AlterUserScramCredentialsResult:
    return AlterUserScramCredentialsResult(user=name, error_code=int(code), error_message=message)
