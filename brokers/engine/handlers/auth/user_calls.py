"""What the calls about users have in common: who may make them, and how a change is written."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from brokers.contract import paths
from brokers.contract.users import UserDocument
from brokers.engine.access.principals import ANONYMOUS
from brokers.engine.cluster import errors
from brokers.engine.cluster.user_plans import Change
from brokers.engine.handlers.common.changing import changing
from brokers.engine.handlers.common.read_your_writes import SEEN_S_MAX
from brokers.engine.handlers.common.turns import LINES_PER_TURN_MAX
from brokers.engine.handlers.context import Call

# Of one request; an instance has no more.
USERS_PER_REQUEST_MAX: Final = 1_000
# Each is hashed, weighed and compared: some tenths of a millisecond.
USERS_PER_TURN_MAX: Final = 10
LINES_OF_A_USER: Final = LINES_PER_TURN_MAX // USERS_PER_TURN_MAX
# By node name, as it was written; None: removed.
Written = dict[str, UserDocument | None]


def may_administer_users(call: Call) -> bool:
    """Until an instance's rights say so: its owner, superusers, and whoever comes by a route that asks for nobody."""
    principal = call.view.principal
    if principal.internal or principal.user == ANONYMOUS:
        return True
    user = users_of(call).get(paths.sanitise(principal.user))
    return user is not None and user.superuser


def users_of(call: Call) -> Mapping[str, UserDocument]:
    """By node name, as the call sees them."""
    instance_id = call.view.instance_id
    return {} if instance_id is None else call.view.image.users.of_instance(instance_id)


async def alter_user(call: Call, name: str, change: Change, *, validate_only: bool, written: Written) -> None:
    """In the instance's turn, and charged for it; `written` is told.

    Raises:
        errors.ClusterError: nothing was changed.
    """
    instance_id, engine = call.view.instance_id, call.engine
    if instance_id is None or call.view.instance is None:
        raise errors.Refused("Users belong to an instance.")
    # What cannot be done to what is shown is not tried: it would cost the instance a turn.
    await engine.store.alter_user(
        engine.current.image, instance_id=instance_id, name=name, change=change, validate_only=True
    )
    if validate_only:
        return
    async with changing(call, 1):
        written[paths.sanitise(name)] = await engine.store.alter_user(
            engine.current.image, instance_id=instance_id, name=name, change=change
        )


async def until_users_seen(call: Call, written: Written) -> None:
    """Waits until the image shows what was written; another change may hide it, so not for ever."""
    instance_id = call.view.instance_id
    if instance_id is None or not written:
        return
    await call.engine.current.wait_until(
        lambda image: all(image.users.of_instance(instance_id).get(node) == user for node, user in written.items()),
        SEEN_S_MAX,
    )
