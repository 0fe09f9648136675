"""Reads users, ACLs, certificates and OAuth configurations of instances (`instance_documents`)."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from typing import Final, NoReturn, TypeVar

from brokers.contract import paths
from brokers.contract.acls import AclDocument
from brokers.contract.certificates import CertificatesDocument
from brokers.contract.oauth import OAuthDocument
from brokers.contract.users import UserDocument
from brokers.engine.cluster import loader
from brokers.engine.cluster.instance_documents import ACLS, CERTIFICATES, OAUTH, USERS, InstanceDocuments
from brokers.engine.cluster.tree import Tree
from brokers.engine.scheduling.time_slice import yield_to_others

T = TypeVar("T")

PARSED_PER_TURN_MAX: Final = 200
# A document of certificates may be as large as 300 KiB.
CERTIFICATES_PARSED_PER_TURN_MAX: Final = 2


async def read_users(tree: Tree, keys: Sequence[tuple[str, str]]) -> dict[tuple[str, str], UserDocument | None]:
    """Returns users by instance and node name, None for deleted ones.

    An unreadable document is omitted, so that the previous one stays in force.
    """
    return await _read(tree, keys, paths.instance_user, UserDocument.from_json, _keep_previous)


async def read_acls(tree: Tree, keys: Sequence[tuple[str, str]]) -> dict[tuple[str, str], AclDocument | None]:
    """Returns ACL documents by instance and node name, None for deleted ones.

    An unreadable document denies everything for its resource, because it may deny more than the previous one.
    """
    return await _read(tree, keys, paths.instance_acl, AclDocument.from_json, _deny_all)


async def read_certificates(
    tree: Tree, keys: Sequence[tuple[str, str]]
) -> dict[tuple[str, str], CertificatesDocument | None]:
    """Returns certificates by instance and route, None if there are none; an unreadable document admits no client."""
    return await _read(
        tree,
        keys,
        paths.instance_route_certificates,
        CertificatesDocument.from_json,
        _no_certificates,
        CERTIFICATES_PARSED_PER_TURN_MAX,
    )


async def read_all_certificates(
    tree: Tree, instance_ids: Iterable[str], before: InstanceDocuments[CertificatesDocument]
) -> InstanceDocuments[CertificatesDocument]:
    """Returns the certificates of these instances; see `read_certificates`."""
    keys = await _list(tree, instance_ids, CERTIFICATES)
    return before.only(keys).with_changes(await read_certificates(tree, keys))


async def read_oauth(tree: Tree, keys: Sequence[tuple[str, str]]) -> dict[tuple[str, str], OAuthDocument | None]:
    """Returns OAuth configurations by instance and node name, with the rules of `read_users`."""
    return await _read(tree, keys, paths.instance_oauth_node, OAuthDocument.from_json, _keep_previous)


async def read_all_users(
    tree: Tree, instance_ids: Iterable[str], before: InstanceDocuments[UserDocument]
) -> InstanceDocuments[UserDocument]:
    """Returns the users of these instances; `before` applies if a document is unreadable."""
    keys = await _list(tree, instance_ids, USERS)
    return before.only(keys).with_changes(await read_users(tree, keys))


async def read_all_acls(
    tree: Tree, instance_ids: Iterable[str], before: InstanceDocuments[AclDocument]
) -> InstanceDocuments[AclDocument]:
    """Returns the ACLs of these instances; see `read_acls`."""
    keys = await _list(tree, instance_ids, ACLS)
    return before.only(keys).with_changes(await read_acls(tree, keys))


async def read_all_oauth(
    tree: Tree, instance_ids: Iterable[str], before: InstanceDocuments[OAuthDocument]
) -> InstanceDocuments[OAuthDocument]:
    """Returns the OAuth configurations of these instances, with the rules of `read_all_users`."""
    keys = await _list(tree, instance_ids, OAUTH)
    return before.only(keys).with_changes(await read_oauth(tree, keys))


class _NoReplacement(Exception):
    """There is no replacement for an unreadable document."""


def _keep_previous(_node_name: str) -> NoReturn:
    raise _NoReplacement


def _no_certificates(_route_name: str) -> CertificatesDocument:
    return CertificatesDocument()


def _deny_all(node_name: str) -> AclDocument:
    try:
        return AclDocument.closed(node_name)
    except ValueError:
        raise _NoReplacement from None


async def _list(tree: Tree, instance_ids: Iterable[str], kind: str) -> list[tuple[str, str]]:
    ids = list(instance_ids)
    children = await tree.children_many([f"{paths.instance(id)}/{kind}" for id in ids])
    return [(id, name) for id, names in zip(ids, children, strict=True) for name in sorted(names or ())]


async def _read(
    tree: Tree,
    keys: Sequence[tuple[str, str]],
    path_of: Callable[[str, str], str],
    parse: Callable[[bytes], T],
    replacement: Callable[[str], T],
    parsed_at_once_max: int = PARSED_PER_TURN_MAX,
) -> dict[tuple[str, str], T | None]:
    nodes = await tree.get_many([path_of(*key) for key in keys]) if keys else []
    result: dict[tuple[str, str], T | None] = {}
    for number, (key, node) in enumerate(zip(keys, nodes, strict=True), start=1):
        if number % parsed_at_once_max == 0:
            await yield_to_others()
        try:
            result[key] = None if node is None else loader.parse_node(path_of(*key), node, parse)
        except loader.MalformedDocument:
            with suppress(_NoReplacement):
                result[key] = replacement(key[1])
    return result
