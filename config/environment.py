"""Addresses, secrets and paths, read from environment variables or the state directory.

`manage.py up` writes the addresses of services it started to `<state dir>/services.json`, where other commands with the
same state directory find them. An environment variable always has precedence.
"""

from __future__ import annotations

import json
import os
import secrets
from dataclasses import dataclass
from ipaddress import ip_address
from pathlib import Path
from urllib.parse import parse_qsl, urlencode, urlsplit, urlunsplit

from brokers.contract import process_identity
from config.web.addresses import Network, networks

BASE_DIR = Path(__file__).resolve().parent.parent
SERVICES_FILE = "services.json"
SECRETS_DIR = "secrets"
TLS_DIR = "tls"
INTERNAL_TLS_DIR = "internal_tls"
# Names the program of this process, which determines its certificate.
PROCESS_VARIABLE = "PENSTOCK_PROCESS"
# Variables for an external ZooKeeper with TLS.
ZOOKEEPER_CA_FILE = "PENSTOCK_ZOOKEEPER_CA_FILE"
ZOOKEEPER_CONTROL_CERTIFICATE_FILE = "PENSTOCK_ZOOKEEPER_CONTROL_CERTIFICATE_FILE"
ZOOKEEPER_BROKER_CERTIFICATE_FILE = "PENSTOCK_ZOOKEEPER_BROKER_CERTIFICATE_FILE"
SECRET_BYTES = 48
DNS_PORT = 53
NUMBER_MAX = 1_000_000  # of hours, days or minutes: such a time still has a date
TRUE_WORDS = frozenset({"1", "true", "yes", "on"})


def state_dir() -> Path:
    """Returns the directory for all persistent state (`PENSTOCK_STATE_DIR`, by default `var/` of the clone)."""
    return Path(os.environ.get("PENSTOCK_STATE_DIR") or BASE_DIR / "var").resolve()


def written_addresses(directory: Path) -> dict[str, str]:
    """Returns the addresses that `manage.py up` wrote for this state directory; empty if it never ran."""
    file = directory / SERVICES_FILE
    if not file.exists():
        return {}
    try:
        body = json.loads(file.read_text(encoding="utf-8"))
    except ValueError:
        body = {}  # truncated by a power failure; the next start rewrites it
    return {str(key): str(value) for key, value in body.items()} if isinstance(body, dict) else {}


def read_secret(directory: Path, name: str) -> str | None:
    """Returns a secret of the state directory, or None."""
    file = directory / SECRETS_DIR / name
    return file.read_text(encoding="ascii").strip() if file.exists() else None


def ensure_secret(directory: Path, name: str, *, prefix: str = "") -> Path:
    """Returns the file of a secret, which is generated once and readable by its owner only."""
    folder = directory / SECRETS_DIR
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    file = folder / name
    if not file.exists() or not file.stat().st_size:  # empty after a power failure, and therefore not in use
        draft = folder / f".{name}.{os.getpid()}"
        descriptor = os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
        with os.fdopen(descriptor, "w", encoding="ascii") as stream:
            stream.write(prefix + secrets.token_urlsafe(SECRET_BYTES))
            stream.flush()
            os.fsync(stream.fileno())
        draft.rename(file)
    return file


def flag(name: str, *, default: bool) -> bool:
    """Returns a boolean environment variable."""
    value = os.environ.get(name)
    return default if value is None else value.strip().lower() in TRUE_WORDS


def positive(name: str, default: float) -> float:
    """Returns a positive number from an environment variable.

    Raises:
        ValueError: the message states what to write instead.
    """
    text = os.environ.get(name, "").strip()
    if not text:
        return default
    try:
        number = float(text)
    except ValueError:
        number = 0.0
    if not 0.0 < number <= NUMBER_MAX:
        raise ValueError(f"{name} is {text!r}. Write a number above zero, such as {default:g}.")
    return number


def https_template(variable: str) -> str:
    """Returns an https URL template from a variable; empty if it is not set. Raises `ValueError`."""
    text = os.environ.get(variable, "")
    if text and not (text.startswith("https://") and text.isascii() and text.isprintable() and " " not in text):
        raise ValueError(f"{variable} must be an address that begins with https://, not {text!r}")
    return text


def whole_days(name: str, default: int, *, minimum: int) -> int:
    """Returns a number of days from an environment variable, at least `minimum`.

    Raises:
        ValueError: the message states what to write instead.
    """
    days = positive(name, default)
    if days < minimum or days != int(days):
        raise ValueError(f"{name} is {days:g}. Write a whole number of days, {minimum} or more.")
    return int(days)


def trusted_proxies() -> tuple[Network, ...]:
    """Returns the proxies trusted to report client addresses (`PENSTOCK_TRUSTED_PROXIES`).

    Raises:
        ValueError: the message states what to write instead.
    """
    return named_networks("PENSTOCK_TRUSTED_PROXIES")


def named_networks(variable: str) -> tuple[Network, ...]:
    """Returns addresses and networks from a variable; none by default.

    Raises:
        ValueError: the message states what to write instead.
    """
    try:
        return networks(os.environ.get(variable, ""))
    except ValueError as error:
        raise ValueError(f"{variable}: {error}. Name addresses and networks, such as 10.0.0.0/24,127.0.0.1.") from error


def dns_servers() -> tuple[tuple[str, int], ...]:
    """Returns address and port of the name servers in `PENSTOCK_DNS_SERVERS`; none means those of the machine.

    Raises:
        ValueError: the message states what to write instead.
    """
    result = []
    for server in os.environ.get("PENSTOCK_DNS_SERVERS", "").split(","):
        if not server.strip():
            continue
        try:
            parts = urlsplit(f"//{server.strip()}")
            result.append((str(ip_address(parts.hostname or "")), parts.port or DNS_PORT))
        except ValueError as error:
            raise ValueError(
                f"PENSTOCK_DNS_SERVERS: {error}. Name addresses with or without port, such as 10.0.0.2,[fd00::2]:5353."
            ) from error
    return tuple(result)


def internal_security() -> str:
    """Returns how our processes authenticate each other (`PENSTOCK_INTERNAL_SECURITY`).

    Raises:
        ValueError: the message states what to write instead.
    """
    security = os.environ.get("PENSTOCK_INTERNAL_SECURITY") or process_identity.MUTUAL_TLS
    if security not in process_identity.SECURITIES:
        names = ", ".join(process_identity.SECURITIES)
        raise ValueError(f"PENSTOCK_INTERNAL_SECURITY is {security!r}. Write one of {names}.")
    return security


@dataclass(frozen=True, slots=True, kw_only=True)
class Environment:
    """Addresses and secrets as input of the settings."""

    state_dir: Path
    secret_key: str
    secret_key_is_kept: bool
    database_url: str
    redis_url: str
    zookeeper_url: str
    spark_master: str
    lake_url: str
    # None: archives on local disks are not offered.
    archive_root: Path | None
    public_url: str
    control_secret_file: Path
    tls_dir: Path
    internal_security: str
    internal_tls_dir: Path
    internal_certificate_file: Path
    # "" if ZooKeeper has no ACLs.
    zookeeper_control_file: str
    zookeeper_broker_file: str
    # "" without TLS, or if its servers request no client certificate.
    zookeeper_ca_file: str
    zookeeper_control_certificate_file: str
    zookeeper_broker_certificate_file: str

    @property
    def celery_broker_url(self) -> str:
        """Redis' address in Celery's form: unix sockets have another scheme and another parameter for `db`.

        TLS requires explicit options for verifying the server's certificate.
        """
        parts = urlsplit(self.redis_url)
        if parts.scheme == "rediss":
            parameters = dict(parse_qsl(parts.query))
            query = urlencode({"ssl_cert_reqs": "required", "ssl_check_hostname": "true", **parameters})
            return urlunsplit(parts._replace(query=query))
        if parts.scheme != "unix":
            return self.redis_url
        query = urlencode([("virtual_host" if name == "db" else name, value) for name, value in parse_qsl(parts.query)])
        return f"redis+socket://{parts.netloc}{parts.path}" + (f"?{query}" if query else "")

    @classmethod
    def read(cls) -> Environment:
        """Reads environment variables, then the addresses written by `manage.py up`, then loopback defaults."""
        directory = state_dir()
        written = written_addresses(directory)

        def address(name: str, default: str) -> str:
            return os.environ.get(name) or written.get(name) or default

        def of_zookeeper(name: str) -> str:
            # Written values belong to the ZooKeeper that was written with them.
            is_written = os.environ.get("ZOOKEEPER_URL") in (None, "", written.get("ZOOKEEPER_URL"))
            return os.environ.get(name) or (written.get(name, "") if is_written else "")

        internal_tls_dir = Path(
            os.environ.get("PENSTOCK_INTERNAL_TLS_DIR") or directory / SECRETS_DIR / INTERNAL_TLS_DIR
        )
        own_identity = process_identity.control(os.environ.get(PROCESS_VARIABLE) or "command")
        stored_key = os.environ.get("SECRET_KEY") or read_secret(directory, "secret_key")
        return cls(
            state_dir=directory,
            secret_key=stored_key or secrets.token_urlsafe(SECRET_BYTES),
            secret_key_is_kept=stored_key is not None,
            database_url=address("DATABASE_URL", "postgres://penstock@127.0.0.1:5432/penstock"),
            redis_url=address("REDIS_URL", "redis://127.0.0.1:6379/0"),
            zookeeper_url=address("ZOOKEEPER_URL", "127.0.0.1:2181"),
            spark_master=address("SPARK_MASTER", "local[*]"),
            archive_root=Path(root).absolute() if (root := os.environ.get("PENSTOCK_ARCHIVE_ROOT", "")) else None,
            lake_url=os.environ.get("PENSTOCK_LAKE_URL", "") or (directory / "lake").absolute().as_uri(),
            public_url=address("PENSTOCK_PUBLIC_URL", "http://127.0.0.1:8000").rstrip("/"),
            zookeeper_control_file=of_zookeeper("PENSTOCK_ZOOKEEPER_CONTROL_FILE"),
            zookeeper_broker_file=of_zookeeper("PENSTOCK_ZOOKEEPER_BROKER_FILE"),
            zookeeper_ca_file=of_zookeeper(ZOOKEEPER_CA_FILE),
            zookeeper_control_certificate_file=of_zookeeper(ZOOKEEPER_CONTROL_CERTIFICATE_FILE),
            zookeeper_broker_certificate_file=of_zookeeper(ZOOKEEPER_BROKER_CERTIFICATE_FILE),
            control_secret_file=Path(
                os.environ.get("PENSTOCK_CONTROL_SECRET_FILE") or directory / SECRETS_DIR / "control_secret"
            ),
            tls_dir=Path(os.environ.get("PENSTOCK_TLS_DIR") or directory / SECRETS_DIR / TLS_DIR),
            internal_security=internal_security(),
            internal_tls_dir=internal_tls_dir,
            internal_certificate_file=Path(
                os.environ.get("PENSTOCK_INTERNAL_CERTIFICATE_FILE") or internal_tls_dir / own_identity.file_name
            ),
        )
