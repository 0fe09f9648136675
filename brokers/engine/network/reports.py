"""Rate-limited log of misbehaving peers, with a count of the omitted lines, and counters of connections."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Final

import structlog

log = structlog.get_logger(__name__)

LINES_PER_SECOND_MAX: Final = 5
_SECOND_MS: Final = 1_000


class NetworkReports:
    """Rate-limited log, so that a stranger's bytes cannot fill the disk. `monotonic_ms` is the clock."""

    def __init__(self, monotonic_ms: Callable[[], int]) -> None:
        self._monotonic_ms = monotonic_ms
        self._second_began_ms = 0
        self._line_count = 0
        self.suppressed = 0

    def log_malformed(self, listener: str, peer: str, error: Exception) -> None:
        if self._may_log():
            log.warning("malformed_request", listener=listener, peer=peer, reason=str(error))

    def log_refused(self, listener: str, peer: str, cause: str, connections: int) -> None:
        """Logs a refused connection; `connections` is the listener's number of connections."""
        if self._may_log():
            log.warning("connection_refused", listener=listener, peer=peer, cause=cause, connections=connections)

    def log_authentication_failure(self, peer: str, reason: str) -> None:
        if self._may_log():
            log.warning("authentication_failed", peer=peer, reason=reason)

    def log_tenant_authentication_failure(self, instance_id: str, peer: str, mechanism: str, reason: str) -> None:
        if self._may_log():
            log.warning(
                "authentication_failed", instance_id=instance_id, peer=peer, mechanism=mechanism or None, reason=reason
            )

    def log_handshake_failure(self, listener: str, peer: str, error: Exception) -> None:
        if self._may_log():
            log.warning("tls_handshake_failed", listener=listener, peer=peer, reason=str(error))

    def log_accept_failure(self, listener: str, error: OSError) -> None:
        if self._may_log():
            log.error("accept_failed", listener=listener, reason=error.strerror)

    def log_fault(self, listener: str, peer: str, error: Exception) -> None:
        """Logs an internal error in one request."""
        if self._may_log():
            log.error("request_failed", listener=listener, peer=peer, exc_info=error)

    def _may_log(self) -> bool:
        now_ms = self._monotonic_ms()
        if now_ms - self._second_began_ms >= _SECOND_MS:
            if self.suppressed:
                log.warning("lines_suppressed", count=self.suppressed)
            self._second_began_ms, self._line_count, self.suppressed = now_ms, 0, 0
        self._line_count += 1
        if self._line_count <= LINES_PER_SECOND_MAX:
            return True
        self.suppressed += 1
        return False


@dataclass(slots=True)
class Counters:
    """Numbers since the start: `refused` connections by cause (`admission`), `ended` ones by reason (`closing`)."""

    accepted: int = 0
    paced: int = 0
    malformed: int = 0
    faults: int = 0
    refused: dict[str, int] = field(default_factory=dict)
    ended: dict[str, int] = field(default_factory=dict)

    def count_refused(self, cause: str) -> None:
        self.refused[cause] = self.refused.get(cause, 0) + 1

    def count_closed(self, reason: str) -> None:
        self.ended[reason] = self.ended.get(reason, 0) + 1
