"""Client quotas in ZooKeeper: validated (QUO-71) and merged into the node, so that its other keys stay (QUO-73,
QUO-74).
"""

from __future__ import annotations

import math
from collections.abc import Mapping

from brokers.contract import documents, paths
from brokers.contract.instance_limits import QUOTA_NAME_BYTES_MAX
from brokers.engine.cluster import changes, errors
from brokers.engine.cluster.quota_image import AnyEntity, IpEntity, path_of
from brokers.engine.cluster.tree import (
    BadVersion,
    Create,
    Delete,
    Node,
    NodeExists,
    NoNode,
    NotEmpty,
    Operation,
    Set,
    Tree,
)
from quotas.addresses import CONNECTION_CREATION_RATE, CONNECTION_CREATION_RATE_MAX, canonical

INTEGRAL_QUOTAS = frozenset({"producer_byte_rate", "consumer_byte_rate", CONNECTION_CREATION_RATE})
QUOTAS = frozenset({"producer_byte_rate", "consumer_byte_rate", "request_percentage", "controller_mutation_rate"})
IP_QUOTAS = frozenset({CONNECTION_CREATION_RATE})
_INTEGRAL_WITHIN = 1e-6
_LONG_MAX = 2**63 - 1
REMOVED_NAME_BYTES_MAX = 16 * 1024


def quotas_of(entity: AnyEntity) -> frozenset[str]:
    """Returns the quotas that may be set for such an entity."""
    return IP_QUOTAS if isinstance(entity, IpEntity) else QUOTAS


def validate(entity: AnyEntity, limits: Mapping[str, float | None]) -> None:
    """Validates the limits of an entity.

    Raises:
        errors.Refused: an empty or overlong name, no entity, an unknown quota, or an invalid value. Removing a
            quota that does not exist is no error.
    """
    if isinstance(entity, IpEntity):
        _validate_address(entity.address)
        names: tuple[str | None, ...] = ()
    elif entity.has_user or entity.has_client:
        names = entity.user, entity.client_id
    else:
        raise errors.Refused("Invalid empty client quota entity")
    # Entities with longer names from before the limit can still be removed.
    bytes_max = REMOVED_NAME_BYTES_MAX if all(value is None for value in limits.values()) else QUOTA_NAME_BYTES_MAX
    for name in names:
        # The length of the name is checked first, because encoding it takes 100 ns per byte.
        if name is not None and not (0 < len(name) <= bytes_max and len(paths.sanitise(name)) <= bytes_max):
            raise errors.Refused(
                f"Invalid name of a client quota entity: it has 1 to {QUOTA_NAME_BYTES_MAX} bytes, and what is not a "
                "letter, digit, '-', '_' or '.' counts as three for each byte of UTF-8"
            )
    for quota, value in limits.items():
        if value is None:
            continue
        if quota not in quotas_of(entity):
            raise errors.Refused(f"Invalid configuration key {quota}")
        if not math.isfinite(value) or value < 0 or value > _LONG_MAX:
            raise errors.Refused(f"Invalid value for {quota}: it must be a finite number of at least 0")
        if quota in INTEGRAL_QUOTAS and abs(value - round(value)) > _INTEGRAL_WITHIN:
            raise errors.Refused(f"Configuration {quota} must be a Long value")
        if quota in IP_QUOTAS and value > CONNECTION_CREATION_RATE_MAX:
            raise errors.Refused(f"Invalid value for {quota}: it is at most {CONNECTION_CREATION_RATE_MAX}")


def _validate_address(address: str | None) -> None:
    if address is None:
        return
    try:
        canonical(address)
    except ValueError:
        raise errors.Refused("Invalid name of a client quota entity: it is not an IP address") from None


def stored_value(quota: str, value: float) -> str:
    """Returns the value as Kafka writes it: integers for the byte rates, decimal fractions for the others."""
    return str(round(value)) if quota in INTEGRAL_QUOTAS else repr(float(value))


async def alter(tree: Tree, *, instance_id: str, entity: AnyEntity, limits: Mapping[str, float | None]) -> int | None:
    """Sets and removes limits and deletes empty nodes, with the change node, in one transaction.

    Returns the number of the change node, None if nothing had to be written.

    Raises:
        errors.Conflict: concurrent writes prevented every attempt.
    """
    entity_path = path_of(instance_id, entity)
    for _ in range(changes.COMPARE_AND_SET_ATTEMPTS_MAX):
        operations = await _plan(tree, entity_path, quotas_of(entity), limits)
        if not operations:
            return None
        try:
            written = await tree.commit([*operations, changes.config_announcement(entity_path)])
        except (BadVersion, NodeExists, NoNode, NotEmpty):
            continue
        return changes.change_number(written)
    raise errors.Conflict("The client quota could not be changed.")


async def _plan(
    tree: Tree, entity_path: str, settable: frozenset[str], limits: Mapping[str, float | None]
) -> list[Operation]:
    path = f"/config/{entity_path}"
    node = await tree.get(path)
    before = _config(node)
    after = dict(before)
    for quota, value in limits.items():
        if quota not in settable:
            continue  # `validate` permits only its removal: it cannot be set, so there is nothing to remove
        if value is None:
            after.pop(quota, None)
        else:
            after[quota] = stored_value(quota, value)
    if node is None:
        if not after:
            return []
        return [*await _missing_parents(tree, entity_path), Create(path, documents.config_to_json(after))]
    if after or await tree.children(path):
        return [Set(path, documents.config_to_json(after), node.version)] if after != before else []
    return [Delete(path, node.version), *await _emptied_parents(tree, entity_path)]


async def _missing_parents(tree: Tree, entity_path: str) -> list[Operation]:
    """Returns creations of missing parents: for `users/u/clients/c`, `users/u` with an empty config and
    `users/u/clients`.
    """
    parts = entity_path.split("/")
    if len(parts) == 2:
        return []
    parents = [(f"/config/users/{parts[1]}", documents.config_to_json({})), (f"/config/users/{parts[1]}/clients", b"")]
    present = await tree.get_many([path for path, _ in parents])
    return [Create(path, body) for (path, body), node in zip(parents, present, strict=True) if node is None]


async def _emptied_parents(tree: Tree, entity_path: str) -> list[Operation]:
    parts = entity_path.split("/")
    if len(parts) == 2:
        return []
    user_path = f"/config/users/{parts[1]}"
    if await tree.children(f"{user_path}/clients") != [parts[3]]:
        return []
    operations: list[Operation] = [Delete(f"{user_path}/clients", None)]
    user = await tree.get(user_path)
    if user is not None and not _config(user) and await tree.children(user_path) == ["clients"]:
        operations.append(Delete(user_path, user.version))
    return operations


def _config(node: Node | None) -> dict[str, str]:
    if node is None or not node.data:
        return {}
    try:
        return documents.config_from_json(node.data)
    except (ValueError, TypeError, AttributeError):
        return {}
