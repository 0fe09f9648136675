"""Interface between the agent and a broker process.

The agent writes the settings file that `python -m brokers.engine --settings FILE` reads, and exchanges two messages
with a standby process (`--stand-by`).
"""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass, field
from pathlib import Path

from brokers.contract.process_identity import PLAINTEXT

# User of the internal listener that sees the cluster under internal names (usage pipeline, operators). The other users
# are `<instance id>`, each of which sees exactly what that instance's owner sees. Both sign in with SASL EXTERNAL and a
# certificate, or PLAIN with the cluster's control secret.
CLUSTER_USER = "penstock"
# Client id with which the control plane reads and sends messages for the console and the API, as the instance. This
# traffic counts against the instance's bandwidth, and is not billed.
MESSAGES_CLIENT_ID = "penstock-messages"

# Messages of a standby process, which waits for its predecessor to end: its output once it is ready, and its input to
# continue.
READY_MESSAGE = b"stands by\n"
CONTINUE_MESSAGE = b"go on\n"


@dataclass(frozen=True, slots=True, kw_only=True)
class BrokerProcessSettings:
    """Settings of one broker process.

    `zookeeper` is `host:port[,host:port]/chroot`. Hosts and ports are those to bind and to advertise.
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
    # A file with `user:password`, and the control plane's digest in access lists; "" if ZooKeeper has no access lists.
    zookeeper_credentials_file: str = ""
    zookeeper_control_digest: str = ""
    # TLS of ZooKeeper: the authority of its servers ("" without TLS), and the broker's certificate ("" for none).
    zookeeper_ca_file: str = ""
    zookeeper_certificate_file: str = ""
    # Key and certificate of routes in PEM, replaced atomically when renewed; "" if routes cannot have TLS.
    tls_certificate_file: str = ""
    # Security between the processes of the installation (`process_identity.SECURITIES`), the broker's key and
    # certificate for it, and the authority that signed these.
    internal_security: str = PLAINTEXT
    internal_certificate_file: str = ""
    internal_ca_file: str = ""
    # Makes the process a gateway: a file with the upstream cluster and the login for it (`upstream.UpstreamSettings`).
    upstream_file: str = ""
    # Broker-level Kafka keys that differ from the defaults of spec N, e.g. {"log.segment.bytes": "1073741824"}.
    overrides: dict[str, str] = field(default_factory=dict)

    def write(self, file: Path) -> None:
        """Replaces the file atomically, so that on a full disk the previous one stays intact."""
        new_file = file.with_suffix(".draft")
        new_file.touch(mode=0o600)
        new_file.write_text(json.dumps(asdict(self), indent=1))
        new_file.replace(file)

    @classmethod
    def read(cls, file: Path) -> BrokerProcessSettings:
        body = json.loads(file.read_text())
        values = {key: value for key, value in body.items() if key in cls.__dataclass_fields__}
        values["data_dirs"] = tuple(values["data_dirs"])
        return cls(**values)
