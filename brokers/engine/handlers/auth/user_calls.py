"""Rights to administer users, and the writing of changes to them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from brokers.contract import paths
from brokers.contract.acls import ResourceType
from brokers.contract.users import UserDocument
from brokers.engine.access.principals import ANONYMOUS
from brokers.engine.cluster import errors
from brokers.engine.cluster.user_plans import Change
from brokers.engine.handlers.common.changing import changing
from brokers.engine.handlers.common.read_your_writes import SEEN_S_MAX
from brokers.engine.handlers.context import Call

# Maximum number of users in one request: the most that an instance may have.
USERS_PER_REQUEST_MAX: Final = 1_000
# Documents as written, by node name; None if removed.
Written = dict[str, UserDocument | None]


def may_administer_users(call: Call) -> bool:
    """True for the owner, superusers, and users with the call's right on the cluster, DESCRIBE or ALTER (KIP-554)."""
    return call.view.principal.internal or not call.denial(ResourceType.CLUSTER)


def may_set_secrets_of(call: Call, name: str) -> bool:
    """True if the caller may set this user's secrets; only the owner and superusers set those of a superuser, so that
    nobody can become one by setting its password.
    """
    user, principal = users_of(call).get(paths.sanitise(name)), call.view.principal
    if user is None or not user.superuser or principal.internal:
        return True
    acting = None if principal.user == ANONYMOUS else users_of(call).get(paths.sanitise(principal.user))
    return acting is not None and acting.superuser


def users_of(call: Call) -> Mapping[str, UserDocument]:
    """Returns the users that the call sees, by node name."""
    instance_id = call.view.instance_id
    return {} if instance_id is None else call.view.image.users.of_instance(instance_id)


async def alter_user(call: Call, name: str, change: Change, *, validate_only: bool, written: Written) -> None:
    """Alters a user in the instance's turn, and charges the instance; adds the result to `written`.

    Raises:
        errors.ClusterError: nothing was changed.
    """
    instance_id, services = call.view.instance_id, call.services
    if instance_id is None or call.view.instance is None:
        raise errors.Refused("Users belong to an instance.")
    # A change that fails on the present metadata is not tried: it would cost the instance a turn.
    await services.metadata.store.alter_user(
        services.metadata.current.image, instance_id=instance_id, name=name, change=change, validate_only=True
    )
    if validate_only:
        return
    async with changing(call, 1):
        written[paths.sanitise(name)] = await services.metadata.store.alter_user(
            services.metadata.current.image, instance_id=instance_id, name=name, change=change
        )


async def until_users_seen(call: Call, written: Written) -> None:
    """Waits until the metadata shows what was written, for a limited time, since a later change may hide it."""
    instance_id = call.view.instance_id
    if instance_id is None or not written:
        return
    await call.services.metadata.current.wait_until(
        lambda image: all(image.users.of_instance(instance_id).get(node) == user for node, user in written.items()),
        SEEN_S_MAX,
    )
