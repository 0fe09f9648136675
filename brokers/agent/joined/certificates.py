"""Certificates of a joined host, for the agent and its brokers; their keys are generated on the host."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import structlog
from django.conf import settings

from brokers.agent.joined.client import UNAUTHENTICATED, ApiClient, ApiRefused, Signer
from brokers.agent.joined.membership import AUTHORITY_FILE, CERTIFICATE_FILE, JoinedHost, read_signer
from brokers.contract import process_identity
from brokers.contract.agent_requests import CERTIFICATES_PATH, Purpose, agent_uri
from brokers.contract.process_identity import CA_FILE
from brokers.infra.certificates import LOCAL_HOSTS, RENEWAL_DAYS, is_valid_for, write_private
from brokers.infra.request_signatures import expires_at, key_pem, new_key, request_pem, require_certificate

log = structlog.get_logger(__name__)


class JoinedCertificates:
    """Renews certificates that expire soon. The methods that renew raise the errors of `ApiClient.call`."""

    def __init__(self, client: ApiClient, joined: JoinedHost, directory: Path) -> None:
        self._client = client
        self._joined = joined
        self._directory = directory

    def renew_own(self) -> None:
        """Renews the agent's certificate before it expires. If that is refused, the present one stays in use."""
        try:
            self._renew_own()
        except ApiRefused as refusal:
            if refusal.status == UNAUTHENTICATED:
                raise
            log.warning("agent.certificate_not_renewed", reason=str(refusal))

    def _renew_own(self) -> None:
        file = self._directory / CERTIFICATE_FILE
        if expires_at(file.read_bytes()) - datetime.now(UTC) > timedelta(days=RENEWAL_DAYS):
            return
        key = new_key()
        body = {"purpose": Purpose.AGENT, "csr_pem": request_pem(key, self._joined.host_id)}
        certificate_pem = str(self._client.call("POST", CERTIFICATES_PATH, body).body["certificate_pem"])
        authority = (self._directory / AUTHORITY_FILE).read_text(encoding="ascii")
        require_certificate(certificate_pem, authority_pem=authority, key=key, uri=agent_uri(self._joined.host_id))
        write_private(file, key_pem(key) + certificate_pem.encode())
        self._client.signer = read_signer(self._directory)
        log.info("agent.certificate_renewed", serial=self._client.signer.serial)

    def signer(self) -> Signer:
        """Returns the key on disk, which another process of this host may have replaced by joining again."""
        return read_signer(self._directory)

    def ensure_authority(self) -> None:
        """Writes the certificate of the internal authority to the file from which brokers read it."""
        authority = (self._directory / AUTHORITY_FILE).read_bytes()
        file = Path(settings.INTERNAL_TLS_DIR) / CA_FILE
        if not file.exists() or file.read_bytes() != authority:
            file.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            write_private(file, authority)

    def ensure_brokers(self, brokers: Iterable[Mapping[str, Any]]) -> None:
        """Renews certificates of brokers. A certificate that is refused for one broker does not affect the others."""
        for broker in brokers:
            if broker["settings"] is None:
                continue
            try:
                # Certificates of a host that was joined again may be revoked.
                from_s = int(broker.get("internal_certificate_from_s", 0))
                self._ensure(broker, Purpose.INTERNAL, internal_file(broker), broker["internal_hosts"], from_s)
                self._ensure(broker, Purpose.ROUTES, routes_file(broker), broker["route_hosts"])
            except ApiRefused as refusal:
                log.warning("agent.certificate_refused", broker_id=broker["number"], reason=str(refusal))

    def _ensure(
        self, broker: Mapping[str, Any], purpose: str, file: Path, hosts: Iterable[str], issued_from_s: int = 0
    ) -> None:
        host_names = (*hosts, *LOCAL_HOSTS)
        if file.exists() and is_valid_for(
            file.read_bytes(), host_names, datetime.now(UTC), issued_from_s=issued_from_s
        ):
            return
        key = new_key()
        body = {"purpose": purpose, "broker_id": broker["id"], "csr_pem": request_pem(key, file.stem)}
        certificate_pem = str(self._client.call("POST", CERTIFICATES_PATH, body).body["certificate_pem"])
        file.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        write_private(file, key_pem(key) + certificate_pem.encode())


def internal_file(broker: Mapping[str, Any]) -> Path:
    """Returns the file with key and certificate of a broker for other processes of the installation."""
    identity = process_identity.broker(broker["cluster_id"], broker["number"])
    return Path(settings.INTERNAL_TLS_DIR) / identity.file_name


def routes_file(broker: Mapping[str, Any]) -> Path:
    """Returns the file with key and certificate of a broker for clients."""
    return Path(settings.TLS_DIR) / f"{broker['cluster_id']}-{broker['number']}.pem"
