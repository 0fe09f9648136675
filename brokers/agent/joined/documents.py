"""Document with the wanted state of a host, which a joined agent gets from the control plane, and the files in it."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

from django.conf import settings

from brokers.agent.control_plane import WantedHost
from brokers.agent.joined.certificates import internal_file, routes_file
from brokers.contract.agent_requests import DOCUMENT_VERSION
from brokers.contract.certificates import ROUTE_KEYS_FILE
from brokers.contract.process import BrokerProcessSettings
from brokers.contract.process_identity import CA_FILE, PLAINTEXT
from brokers.infra.certificates import write_private
from brokers.models import Broker, Host

# Folder below the state directory for the files with secrets to which settings of brokers refer.
FILES_DIR: Final = "secrets/joined"
_NAMED_FILES: Final = (
    "control_secret_file", "zookeeper_credentials_file", "zookeeper_ca_file", "zookeeper_certificate_file",
    "upstream_file",
)  # fmt: skip
_FILE_NAME: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,99}")


class JoinedDocument:
    """Document with the wanted state of a host; immutable."""

    def __init__(self, body: Any) -> None:
        """Raises `ValueError`, `KeyError` or `TypeError` for a document that this version cannot read."""
        if not isinstance(body, Mapping):
            raise ValueError("the answer is no document of the control plane")
        if body.get("version") != DOCUMENT_VERSION:
            raise ValueError(f"the control plane sends documents of version {body.get('version')}: upgrade this host")
        self.body: Mapping[str, Any] = body
        self.poll_after_s = float(body["poll_after_s"])
        self.product_version = str(body["product_version"])
        self.brokers: list[Mapping[str, Any]] = list(body["brokers"])
        self._by_id: dict[str, Mapping[str, Any]] = {broker["id"]: broker for broker in self.brokers}

    @classmethod
    def read(cls, file: Path) -> JoinedDocument | None:
        """Returns the document that an earlier run stored; None if it is missing or cannot be read."""
        try:
            return cls(json.loads(file.read_text(encoding="utf-8")))
        except (OSError, ValueError, KeyError, TypeError):
            return None

    def write(self, file: Path) -> None:
        """Stores the document, without its secrets, for a start while the control plane is away."""
        write_private(file, json.dumps({**self.body, "files": {}}).encode())

    def write_files(self) -> None:
        """Writes the secrets of brokers, each readable by its owner only. Raises `ValueError` for a wrong name."""
        for name, content in self.body["files"].items():
            if not _FILE_NAME.fullmatch(name):
                raise ValueError("the control plane names a file that is none of ours")
            folder = Path(settings.TLS_DIR) if name == ROUTE_KEYS_FILE else Path(settings.STATE_DIR) / FILES_DIR
            file, raw = folder / name, str(content).encode("ascii")
            if not file.exists() or file.read_bytes() != raw:
                folder.mkdir(mode=0o700, parents=True, exist_ok=True)
                write_private(file, raw)

    def wanted_host(self) -> WantedHost:
        """Returns the wanted state as rows that are not in a database."""
        host_fields = self.body["host"]
        host = Host(
            id=host_fields["id"],
            name=host_fields["name"],
            bind_host=host_fields["bind_host"],
            port_first=host_fields["port_first"],
            port_last=host_fields["port_last"],
            data_dirs=host_fields["data_dirs"],
            version=host_fields["version"],
        )
        brokers = [
            Broker(
                id=broker["id"],
                number=broker["number"],
                cluster_id=broker["cluster_id"],
                host=host,
                wanted=broker["wanted"],
                restart_generation=broker["restart_generation"],
                process_restart_generation=broker["process_restart_generation"],
                process_state=broker["process_state"],
            )
            for broker in self.brokers
        ]
        return WantedHost(host, brokers)

    def settings_of(self, broker_id: str) -> BrokerProcessSettings:
        """Returns the settings of a broker. Raises `OSError` if it cannot be started yet."""
        broker = self._by_id.get(broker_id)
        if broker is None or broker["settings"] is None:
            raise OSError("the broker is removed")
        field_values = {
            name: value for name, value in broker["settings"].items()
            if name in BrokerProcessSettings.__dataclass_fields__
        }  # fmt: skip
        folder = Path(settings.STATE_DIR) / FILES_DIR
        for name in _NAMED_FILES:
            field_values[name] = str(folder / field_values[name]) if field_values.get(name) else ""
        internal, routes = internal_file(broker), routes_file(broker)
        if field_values["internal_security"] != PLAINTEXT and not internal.exists():
            raise OSError("its certificate is not issued yet")
        field_values["data_dirs"] = tuple(field_values["data_dirs"])
        return BrokerProcessSettings(
            **field_values,
            tls_certificate_file=str(routes),
            internal_certificate_file=str(internal),
            internal_ca_file=str(Path(settings.INTERNAL_TLS_DIR) / CA_FILE),
        )

    def directories(self) -> list[str]:
        """Returns the log directories of all brokers."""
        return [path for broker in self.brokers if broker["settings"] for path in broker["settings"]["data_dirs"]]
