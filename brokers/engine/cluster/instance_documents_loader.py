"""Reads users, access control lists, certificates and OAuth configurations of instances (`instance_documents`)."""

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

PARSED_AT_ONCE_MAX: Final = 200
# One document of certificates may weigh as much as 300 KiB.
CERTIFICATES_PARSED_AT_ONCE_MAX: Final = 2


async def read_users(tree: Tree, wanted: Sequence[tuple[str, str]]) -> dict[tuple[str, str], UserDocument | None]:
    """By instance and node name; None where it is gone. A document that makes no sense is left out: what was known
    before stays in force.
    """
    return await _read(tree, wanted, paths.instance_user, UserDocument.from_json, _as_it_was)


async def read_acls(tree: Tree, wanted: Sequence[tuple[str, str]]) -> dict[tuple[str, str], AclDocument | None]:
    """By instance and node name; None where it is gone. One that makes no sense closes what it is about, whatever was
    known before: it may deny more than that did.
    """
    return await _read(tree, wanted, paths.instance_acl, AclDocument.from_json, _closed)


async def read_certificates(
    tree: Tree, wanted: Sequence[tuple[str, str]]
) -> dict[tuple[str, str], CertificatesDocument | None]:
    """By instance and route; None where there are none. A document that makes no sense lets nobody in."""
    return await _read(
        tree,
        wanted,
        paths.instance_route_certificates,
        CertificatesDocument.from_json,
        _nobody,
        CERTIFICATES_PARSED_AT_ONCE_MAX,
    )


async def read_all_certificates(
    tree: Tree, instance_ids: Iterable[str], before: InstanceDocuments[CertificatesDocument]
) -> InstanceDocuments[CertificatesDocument]:
    """Of these instances; see `read_certificates`."""
    wanted = await _list(tree, instance_ids, CERTIFICATES)
    return before.only(wanted).with_changes(await read_certificates(tree, wanted))


async def read_oauth(tree: Tree, wanted: Sequence[tuple[str, str]]) -> dict[tuple[str, str], OAuthDocument | None]:
    """As `read_users`."""
    return await _read(tree, wanted, paths.instance_oauth_node, OAuthDocument.from_json, _as_it_was)


async def read_all_users(
    tree: Tree, instance_ids: Iterable[str], before: InstanceDocuments[UserDocument]
) -> InstanceDocuments[UserDocument]:
    """Of these instances; `before` stands where a document makes no sense."""
    wanted = await _list(tree, instance_ids, USERS)
    return before.only(wanted).with_changes(await read_users(tree, wanted))


async def read_all_acls(
    tree: Tree, instance_ids: Iterable[str], before: InstanceDocuments[AclDocument]
) -> InstanceDocuments[AclDocument]:
    """Of these instances; see `read_acls`."""
    wanted = await _list(tree, instance_ids, ACLS)
    return before.only(wanted).with_changes(await read_acls(tree, wanted))


async def read_all_oauth(
    tree: Tree, instance_ids: Iterable[str], before: InstanceDocuments[OAuthDocument]
) -> InstanceDocuments[OAuthDocument]:
    """As `read_all_users`."""
    wanted = await _list(tree, instance_ids, OAUTH)
    return before.only(wanted).with_changes(await read_oauth(tree, wanted))


class _Unknown(Exception):
    """Nothing can be said in the place of a document."""


def _as_it_was(_node_name: str) -> NoReturn:
    raise _Unknown


def _nobody(_route_name: str) -> CertificatesDocument:
    return CertificatesDocument()


def _closed(node_name: str) -> AclDocument:
    try:
        return AclDocument.closed(node_name)
    except ValueError:
        raise _Unknown from None


async def _list(tree: Tree, instance_ids: Iterable[str], kind: str) -> list[tuple[str, str]]:
    ids = list(instance_ids)
    children = await tree.children_many([f"{paths.instance(id)}/{kind}" for id in ids])
    return [(id, name) for id, names in zip(ids, children, strict=True) for name in sorted(names or ())]


async def _read(
    tree: Tree,
    wanted: Sequence[tuple[str, str]],
    path_of: Callable[[str, str], str],
    parse: Callable[[bytes], T],
    instead: Callable[[str], T],
    parsed_at_once_max: int = PARSED_AT_ONCE_MAX,
) -> dict[tuple[str, str], T | None]:
    nodes = await tree.get_many([path_of(*each) for each in wanted]) if wanted else []
    result: dict[tuple[str, str], T | None] = {}
    for number, (each, node) in enumerate(zip(wanted, nodes, strict=True), start=1):
        if number % parsed_at_once_max == 0:
            await yield_to_others()
        try:
            result[each] = None if node is None else loader.understand(path_of(*each), node, parse)
        except loader.Malformed:
            with suppress(_Unknown):
                result[each] = instead(each[1])
    return result
