"""Implementation of the agent's control plane over HTTPS, for a joined agent.

A thread polls and reports, so that an unresponsive control plane does not delay the supervision of brokers. The last
document is stored on disk: an agent that cannot reach the control plane at its start uses it to start its brokers.
"""

from __future__ import annotations

import random
import threading
import time
import uuid
from collections.abc import Callable, Mapping, Sequence
from datetime import datetime
from http.client import HTTPException
from pathlib import Path
from typing import Any, Final

import structlog

from brokers.agent.broker_certificates import RENEWAL_CHECK_INTERVAL_S
from brokers.agent.check_rules import Check
from brokers.agent.control_plane import ControlPlaneUnavailable, HostFacts, WantedHost
from brokers.agent.joined.certificates import JoinedCertificates
from brokers.agent.joined.client import NOT_MODIFIED, UNAUTHENTICATED, ApiClient, ApiRefused
from brokers.agent.joined.documents import JoinedDocument
from brokers.agent.joined.facts import JoinedFacts
from brokers.agent.joined.membership import DOCUMENT_FILE, JoinedHost, NotJoined, read_signer
from brokers.contract.agent_requests import REPORT_PATH, WANTED_PATH
from brokers.contract.process import BrokerProcessSettings
from brokers.contract.version import VERSION
from brokers.limits import AGENT_POLL_S_MIN, AGENT_REPORT_ENDS_MAX, AGENT_REQUEST_TIMEOUT_S, AGENT_RETRY_S_MAX
from brokers.models import Broker

log = structlog.get_logger(__name__)

# Relative jitter of the poll interval: agents that were started together soon poll at different times.
JITTER: Final = 0.1


class JoinedControlPlane:
    """Control plane of one host. `begin_round` starts its thread, `close` ends it after a last report."""

    def __init__(self, joined: JoinedHost, directory: Path, *, clock: Callable[[], float] = time.monotonic) -> None:
        """Raises `NotJoined` if the key cannot be read."""
        self._clock = clock
        self._document_file = directory / DOCUMENT_FILE
        self._client = ApiClient(joined.address, read_signer(directory))
        self._certificates = JoinedCertificates(self._client, joined, directory)
        self._document = JoinedDocument.read(self._document_file)
        self._document_tag = ""
        self._polled_at_s: float | None = None
        self._certified_at_s: float | None = None
        self._lock = threading.Lock()
        self._reports: dict[str, dict[str, Any]] = {}
        self._checks: dict[str, Any] | None = None
        # The last report, resent unchanged until its receipt is confirmed.
        self._unconfirmed_report: dict[str, Any] | None = None
        self._has_reported_version = False
        self._document_changed, self._report_pending, self._is_closing = (
            threading.Event(),
            threading.Event(),
            threading.Event(),
        )
        self._thread: threading.Thread | None = None
        self.facts: HostFacts = JoinedFacts(
            directory, lambda: self._document, lambda: self._client.clock_offset_ms, self._store_checks
        )

    # --- called by the agent's loop -----------------------------------------------------------------------------------

    def begin_round(self) -> None:
        if self._thread is None:
            self._thread = threading.Thread(target=self._run, name="control-plane", daemon=True)
            self._thread.start()

    def wanted_host(self) -> WantedHost | None:
        document = self._document
        if document is None:
            raise ControlPlaneUnavailable("it has not answered yet")
        return document.wanted_host()

    def renew_certificates(self, brokers: Sequence[Broker], now_s: float) -> None:
        """Does nothing: the thread renews them."""

    def settings_of(self, broker: Broker) -> BrokerProcessSettings:
        document = self._document
        if document is None:
            raise ControlPlaneUnavailable("it has not answered yet")
        return document.settings_of(broker.pk)

    def store_process_state(self, broker_id: str, fields: dict[str, Any]) -> None:
        with self._lock:
            self._reports.setdefault(broker_id, {}).update(
                {name: _to_json_value(value) for name, value in fields.items()}
            )
        self._report_pending.set()

    def count_restart(self, broker_id: str) -> None:
        with self._lock:
            report = self._reports.setdefault(broker_id, {})
            report["ends"] = min(AGENT_REPORT_ENDS_MAX, report.get("ends", 0) + 1)
        self._report_pending.set()

    def wait(self, timeout_s: float) -> None:
        self._document_changed.wait(timeout_s)
        self._document_changed.clear()

    def close(self) -> None:
        self._is_closing.set()
        self._report_pending.set()
        if self._thread is not None:
            self._thread.join(AGENT_REQUEST_TIMEOUT_S)
        self._client.close()

    # --- run by the thread --------------------------------------------------------------------------------------------

    def _run(self) -> None:
        failures = 0
        while True:
            is_last = self._is_closing.is_set()
            failures = 0 if self._try_exchange() else failures + 1
            if is_last:
                return
            if failures:
                self._is_closing.wait(_with_jitter(min(AGENT_RETRY_S_MAX, 0.5 * 2 ** min(failures, 10))))
            else:
                document = self._document
                self._report_pending.wait(_with_jitter(document.poll_after_s if document else AGENT_POLL_S_MIN))
            self._report_pending.clear()

    def _try_exchange(self) -> bool:
        """Exchanges documents with the control plane. Returns False if that failed, and logs the reason."""
        try:
            self._exchange()
        except ApiRefused as refusal:
            if refusal.is_temporary:
                log.warning("agent.no_control_plane", reason=str(refusal))
            else:
                log.error("agent.refused", code=refusal.code, reason=refusal.detail)
                self._reload_key()
            return False
        except (OSError, HTTPException, ValueError, KeyError, TypeError, AttributeError) as error:
            # The last three errors come from answers of another shape, from a proxy for example.
            log.warning("agent.no_control_plane", reason=f"{type(error).__name__}: {error}")
            return False
        return True

    def _reload_key(self) -> None:
        """Uses the key on disk from now on: the host may have joined again meanwhile."""
        try:
            self._client.signer = self._certificates.signer()
        except NotJoined as error:
            log.error("agent.refused", code="not_joined", reason=str(error))

    def _exchange(self) -> None:
        now_s = self._clock()
        document = self._document
        if self._polled_at_s is None or document is None or now_s - self._polled_at_s >= document.poll_after_s / 2:
            self._certificates.renew_own()
            self._pull_document()
            self._polled_at_s = now_s
        self._push_reports()

    def _pull_document(self) -> None:
        response = self._client.call("GET", WANTED_PATH, tag=self._document_tag)
        document = self._document
        if response.status != NOT_MODIFIED or document is None:
            document = JoinedDocument(response.body)
        is_new = document is not self._document
        now_s = self._clock()
        if is_new or self._certified_at_s is None or now_s - self._certified_at_s >= RENEWAL_CHECK_INTERVAL_S:
            document.write_files()
            self._certificates.ensure_authority()
            self._certificates.ensure_brokers(document.brokers)
            self._certified_at_s = now_s
        if is_new:
            document.write(self._document_file)
            self._document, self._document_tag = document, response.tag
            self._document_changed.set()

    def _push_reports(self) -> None:
        """Resends an unconfirmed report, then sends a report of the later observations."""
        for _ in range(2):
            if self._unconfirmed_report is None:
                self._unconfirmed_report = self._next_report()
            if self._unconfirmed_report is None:
                return
            try:
                self._client.call("POST", REPORT_PATH, self._unconfirmed_report)
            except ApiRefused as refusal:
                # An invalid report would be refused every time, and would block all later reports: it is dropped.
                if not refusal.is_temporary and refusal.status != UNAUTHENTICATED:
                    self._unconfirmed_report = None
                raise
            self._unconfirmed_report, self._has_reported_version = None, True

    def _next_report(self) -> dict[str, Any] | None:
        """Returns a report of the observations since the last one; None without any, once the version is reported."""
        with self._lock:
            reports, self._reports = self._reports, {}
            checks, self._checks = self._checks, None
        if not reports and checks is None and self._has_reported_version:
            return None
        brokers = [{"id": broker_id, **fields} for broker_id, fields in reports.items()]
        return {"agent_version": VERSION, "report_id": uuid.uuid4().hex, "brokers": brokers, **(checks or {})}

    def _store_checks(self, checks: list[Check], machine: Mapping[str, Any]) -> None:
        with self._lock:
            self._checks = {"checks": checks, "machine": machine}
        self._report_pending.set()


def _to_json_value(value: Any) -> Any:
    """Returns a value for JSON that PostgreSQL can store: an instant as text, a text without NUL characters."""
    if isinstance(value, datetime):
        return value.isoformat()
    return value.replace("\0", "") if isinstance(value, str) else value


def _with_jitter(interval_s: float) -> float:
    return interval_s * random.uniform(1 - JITTER, 1 + JITTER)  # noqa: S311 (no secret)
