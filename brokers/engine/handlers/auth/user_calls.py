"""What the calls about users have in common: who may make them, and how a change is written."""

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

# Of one request; an instance has no more.
USERS_PER_REQUEST_MAX: Final = 1_000
# By node name, as it was written; None: removed.
Written = dict[str, UserDocument | None]


def may_administer_users(call: Call) -> bool:
    """The owner, superusers, and who has the right to describe or alter the cluster, as the call asks (KIP-554)."""
    return call.view.principal.internal or not call.denial(ResourceType.CLUSTER)


def may_set_secrets_of(call: Call, name: str) -> bool:
    """Nobody becomes a superuser by a new password for one: only the owner and superusers set theirs."""
    user, principal = users_of(call).get(paths.sanitise(name)), call.view.principal
    if user is None or not user.superuser or principal.internal:
        return True
    acting = None if principal.user == ANONYMOUS else users_of(call).get(paths.sanitise(principal.user))
    return acting is not None and acting.superuser


def users_of(call: Call) -> Mapping[str, UserDocument]:
    """By node name, as the call sees them."""
    instance_id = call.view.instance_id
    return {} if instance_id is None else call.view.image.users.of_instance(instance_id)


async def alter_user(call: Call, name: str, change: Change, *, validate_only: bool, written: Written) -> None:
    """In the instance's turn, and charged for it; `written` is told.

    Raises:
        errors.ClusterError: nothing was changed.
    """
    instance_id, services = call.view.instance_id, call.services
    if instance_id is None or call.view.instance is None:
        raise errors.Refused("Users belong to an instance.")
    # What cannot be done to what is shown is not tried: it would cost the instance a turn.
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
    """Waits until the image shows what was written; another change may hide it, so not for ever."""
    instance_id = call.view.instance_id
    if instance_id is None or not written:
        return
    await call.services.metadata.current.wait_until(
        lambda image: all(image.users.of_instance(instance_id).get(node) == user for node, user in written.items()),
        SEEN_S_MAX,
    )
