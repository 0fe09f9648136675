"""Users of an instance in ZooKeeper: one document each, written by compare-and-set with its change entry; and requests
to the control plane to fetch the instance's OAuth key set again: one node each, which it then deletes.
"""

from __future__ import annotations

from collections.abc import Callable

from brokers.contract import paths
from brokers.contract.users import UserDocument
from brokers.engine.cluster import changes, errors
from brokers.engine.cluster.instance_documents import USERS, change_entry
from brokers.engine.cluster.tree import BadVersion, Create, Delete, NodeExists, NoNode, Operation, Set, Tree
from brokers.engine.cluster.user_plans import Change

# Raises errors.PolicyViolation if the instance has no capacity for the new document.
CheckLimits = Callable[[UserDocument | None, UserDocument | None], object]


async def alter(
    tree: Tree, *, instance_id: str, node: str, change: Change, check_limits: CheckLimits
) -> UserDocument | None:
    """Changes a user and returns the stored document, None if there is no such user.

    Raises:
        errors.Refused: by `change` or `check_limits`, or because the instance is gone.
        errors.Conflict: concurrent writes of the user prevented every attempt.
    """
    path = paths.instance_user(instance_id, node)
    for _ in range(changes.COMPARE_AND_SET_ATTEMPTS_MAX):
        present = await tree.get(path)
        before = None if present is None else _parse_user(present.data)
        after = change(before)
        check_limits(before, after)
        if present is None and after is None:
            return None
        operations: list[Operation] = []
        if present is None:
            assert after is not None, "returned above"
            parent = paths.instance_users(instance_id)
            if await tree.get(parent) is None:
                if await tree.get(paths.instance(instance_id)) is None:
                    raise errors.Refused("The instance is gone.")
                operations.append(Create(parent))
            operations.append(Create(path, after.to_json()))
        elif after is None:
            operations.append(Delete(path, present.version))
        elif after == before:
            return after
        else:
            operations.append(Set(path, after.to_json(), present.version))
        try:
            await tree.commit([*operations, changes.document_announcement(change_entry(instance_id, USERS, node))])
        except (BadVersion, NodeExists, NoNode):
            continue
        return after
    raise errors.Conflict("The user could not be changed; try again.")


def _parse_user(raw: bytes) -> UserDocument | None:
    """Parses a document; an unreadable one counts as missing and is overwritten."""
    try:
        return UserDocument.from_json(raw)
    except (ValueError, TypeError, KeyError, AttributeError):
        return None


async def request_keys(tree: Tree, instance_id: str) -> None:
    """Creates a request for an instance unless one is pending. Raises StoreUnavailable."""
    operations: list[Operation] = [Create(paths.key_request(instance_id))]
    if await tree.get(paths.KEY_REQUESTS) is None:
        operations.insert(0, Create(paths.KEY_REQUESTS))
    try:
        await tree.commit(operations)
    except (NodeExists, NoNode):
        return
