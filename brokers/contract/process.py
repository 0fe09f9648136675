"""What agent and broker process say to each other: the settings file, written by the agent and read by
`python -m brokers.engine --settings FILE`, and the two words of a process that stands by (`--stand-by`).
"""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass, field
from pathlib import Path

from brokers.contract.process_identity import PLAINTEXT

# The two identities of the internal listener (SASL EXTERNAL behind a certificate, or PLAIN with the cluster's control
# secret): `<instance id>` sees exactly what that instance's owner sees; this one sees the cluster under internal names
# (usage pipeline, operators).
CLUSTER_USER = "penstock"
# Client id under which the control plane reads and sends messages for people and API clients, as the instance. What
# moves then counts against the instance's bandwidth, and on no bill.
MESSAGES_CLIENT_ID = "penstock-messages"

# Over the standard input of a process that waits for its predecessor to end: what it says, and what it is told then.
STANDS_BY = b"stands by\n"
CALLED = b"go on\n"


@dataclass(frozen=True, slots=True, kw_only=True)
class BrokerProcessSettings:
    """One broker process. `zookeeper` is `host:port[,host:port]/chroot`; hosts and ports are those to bind and
    advertise.
    """

    broker_id: int
    cluster_id: str
    zookeeper: str
    data_dirs: tuple[str, ...]
    bind_host: str
    internal_host: str
    internal_port: int
    admin_port: int
    control_secret_file: str
    rack: str | None = None
    session_timeout_ms: int = 6_000
    # A file with `user:password`, and how access lists name the control plane; "" where ZooKeeper has no access lists.
    zookeeper_credentials_file: str = ""
    zookeeper_control_digest: str = ""
    # Where ZooKeeper is spoken to under TLS: its servers' authority, and what a broker shows them ("" for nothing).
    zookeeper_ca_file: str = ""
    zookeeper_certificate_file: str = ""
    # Key and certificate in PEM, replaced in one step when they are renewed; "" where routes cannot have TLS.
    tls_certificate_file: str = ""
    # How it and the other processes of the installation know each other (`process_identity.SECURITIES`), its own key
    # and certificate for that, and the authority that signed it.
    internal_security: str = PLAINTEXT
    internal_certificate_file: str = ""
    internal_ca_file: str = ""
    # Broker-level Kafka keys that differ from the defaults of spec N, e.g. {"log.segment.bytes": "1073741824"}.
    overrides: dict[str, str] = field(default_factory=dict)

    def write(self, file: Path) -> None:
        """Replace the file in one step: on a full disk the one before stays whole."""
        draft = file.with_suffix(".draft")
        draft.touch(mode=0o600)
        draft.write_text(json.dumps(asdict(self), indent=1))
        draft.replace(file)

    @classmethod
    def read(cls, file: Path) -> BrokerProcessSettings:
        body = json.loads(file.read_text())
        known = {key: value for key, value in body.items() if key in cls.__dataclass_fields__}
        known["data_dirs"] = tuple(known["data_dirs"])
        return cls(**known)
