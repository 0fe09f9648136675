"""Reads the revoked certificates of brokers from ZooKeeper, at the start and periodically (decision 168)."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

import structlog

from brokers.contract import paths
from brokers.contract.revoked_certificates import RevokedCertificates
from brokers.engine.cluster.errors import ClusterError
from brokers.engine.cluster.tree import Tree

log = structlog.get_logger(__name__)

INTERVAL_S: Final = 10.0


class Revocations:
    """Follows the document of revoked certificates. While it is unreadable, the last version read stays in force."""

    def __init__(self, tree: Tree, use: Callable[[RevokedCertificates], object]) -> None:
        self._tree = tree
        self._use = use
        self._raw = b""

    async def refresh(self) -> None:
        """Reads the document, and calls `use` with its content if it changed."""
        try:
            node = await self._tree.get(paths.REVOKED_CERTIFICATES)
        except ClusterError as error:
            log.warning("revoked_certificates_not_read", reason=repr(error))
            return
        raw = b"" if node is None else node.data
        if raw == self._raw:
            return
        self._raw = raw
        try:
            revoked = RevokedCertificates.from_json(raw) if raw else RevokedCertificates()
        except (ValueError, KeyError, TypeError, AttributeError) as error:
            log.warning("document_ignored", path=paths.REVOKED_CERTIFICATES, reason=repr(error))
            return
        log.info("revoked_certificates_read", brokers=sorted(revoked.valid_from_s))
        self._use(revoked)
