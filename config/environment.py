"""Where the outside world is: addresses, secrets and places, read from the environment or from the state directory.

`manage.py up` writes the addresses of what it started to `<state dir>/services.json`; any other command run against
the same state directory finds them there. A variable of the environment always wins.
"""

from __future__ import annotations

import json
import os
import secrets
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import parse_qsl, urlencode, urlsplit, urlunsplit

from brokers.contract import process_identity
from config.web.addresses import Network, networks

BASE_DIR = Path(__file__).resolve().parent.parent
SERVICES_FILE = "services.json"
SECRETS_DIR = "secrets"
TLS_DIR = "tls"
INTERNAL_TLS_DIR = "internal_tls"
# Which of our programs this is, by which it finds its certificate.
PROCESS_VARIABLE = "PENSTOCK_PROCESS"
# Of an external ZooKeeper that is spoken to under TLS.
ZOOKEEPER_CA_FILE = "PENSTOCK_ZOOKEEPER_CA_FILE"
ZOOKEEPER_CONTROL_CERTIFICATE_FILE = "PENSTOCK_ZOOKEEPER_CONTROL_CERTIFICATE_FILE"
ZOOKEEPER_BROKER_CERTIFICATE_FILE = "PENSTOCK_ZOOKEEPER_BROKER_CERTIFICATE_FILE"
SECRET_BYTES = 48
NUMBER_MAX = 1_000_000  # of hours, days or minutes: a time that far away still has a date
TRUE_WORDS = frozenset({"1", "true", "yes", "on"})


def state_dir() -> Path:
    """The directory that holds everything a run leaves behind (`PENSTOCK_STATE_DIR`, default `var/` of the clone)."""
    return Path(os.environ.get("PENSTOCK_STATE_DIR") or BASE_DIR / "var").resolve()


def written_addresses(directory: Path) -> dict[str, str]:
    """What `manage.py up` wrote about the services it started for this state directory; empty when it never ran."""
    file = directory / SERVICES_FILE
    if not file.exists():
        return {}
    try:
        body = json.loads(file.read_text(encoding="utf-8"))
    except ValueError:
        body = {}  # torn by a power cut; the next start writes it anew
    return {str(key): str(value) for key, value in body.items()} if isinstance(body, dict) else {}


def read_secret(directory: Path, name: str) -> str | None:
    """A secret kept in the state directory, or None when there is none."""
    file = directory / SECRETS_DIR / name
    return file.read_text(encoding="ascii").strip() if file.exists() else None


def ensure_secret(directory: Path, name: str, *, prefix: str = "") -> Path:
    """The file of a secret, generated once, readable by its owner only."""
    folder = directory / SECRETS_DIR
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    file = folder / name
    if not file.exists() or not file.stat().st_size:  # an empty one is what a power cut left: nobody was given it
        draft = folder / f".{name}.{os.getpid()}"
        descriptor = os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
        with os.fdopen(descriptor, "w", encoding="ascii") as stream:
            stream.write(prefix + secrets.token_urlsafe(SECRET_BYTES))
            stream.flush()
            os.fsync(stream.fileno())
        draft.rename(file)
    return file


def flag(name: str, *, default: bool) -> bool:
    """A yes/no variable of the environment."""
    value = os.environ.get(name)
    return default if value is None else value.strip().lower() in TRUE_WORDS


def positive(name: str, default: float) -> float:
    """A number above zero out of the environment.

    Raises:
        ValueError: it says what to write instead.
    """
    word = os.environ.get(name, "").strip()
    if not word:
        return default
    try:
        number = float(word)
    except ValueError:
        number = 0.0
    if not 0.0 < number <= NUMBER_MAX:
        raise ValueError(f"{name} is {word!r}. Write a number above zero, such as {default:g}.")
    return number


def https_template(variable: str) -> str:
    """Address with placeholders in braces that a variable names; empty where it is not set. Raises `ValueError`."""
    text = os.environ.get(variable, "")
    if text and not (text.startswith("https://") and text.isascii() and text.isprintable() and " " not in text):
        raise ValueError(f"{variable} must be an address that begins with https://, not {text!r}")
    return text


def whole_days(name: str, default: int, *, least: int) -> int:
    """A number of days out of the environment, `least` or more.

    Raises:
        ValueError: it says what to write instead.
    """
    days = positive(name, default)
    if days < least or days != int(days):
        raise ValueError(f"{name} is {days:g}. Write a whole number of days, {least} or more.")
    return int(days)


def trusted_proxies() -> tuple[Network, ...]:
    """The proxies whose word about a client's address counts (`PENSTOCK_TRUSTED_PROXIES`).

    Raises:
        ValueError: it says what to write instead.
    """
    return named_networks("PENSTOCK_TRUSTED_PROXIES")


def named_networks(variable: str) -> tuple[Network, ...]:
    """Addresses and networks that a variable names; none by default.

    Raises:
        ValueError: it says what to write instead.
    """
    try:
        return networks(os.environ.get(variable, ""))
    except ValueError as error:
        raise ValueError(f"{variable}: {error}. Name addresses and networks, such as 10.0.0.0/24,127.0.0.1.") from error


def internal_security() -> str:
    """How our own processes know each other (`PENSTOCK_INTERNAL_SECURITY`).

    Raises:
        ValueError: it says what to write instead.
    """
    word = os.environ.get("PENSTOCK_INTERNAL_SECURITY") or process_identity.MUTUAL_TLS
    if word not in process_identity.SECURITIES:
        names = ", ".join(process_identity.SECURITIES)
        raise ValueError(f"PENSTOCK_INTERNAL_SECURITY is {word!r}. Write one of {names}.")
    return word


@dataclass(frozen=True, slots=True, kw_only=True)
class Environment:
    """Addresses and secrets the settings are made from."""

    state_dir: Path
    secret_key: str
    secret_key_is_kept: bool
    database_url: str
    redis_url: str
    zookeeper_url: str
    spark_master: str
    lake_url: str
    # None: tenants keep no archives on our disks.
    archive_root: Path | None
    public_url: str
    control_secret_file: Path
    tls_dir: Path
    internal_security: str
    internal_tls_dir: Path
    internal_certificate_file: Path
    # "" where ZooKeeper has no access lists.
    zookeeper_control_file: str
    zookeeper_broker_file: str
    # "" where it is spoken to in the clear, or its servers ask for no certificate.
    zookeeper_ca_file: str
    zookeeper_control_certificate_file: str
    zookeeper_broker_certificate_file: str

    @property
    def celery_broker_url(self) -> str:
        """Redis' address as Celery spells it: that of a unix socket has another scheme, and another word for `db`. TLS
        is spoken only where it is told what to ask of the server's certificate.
        """
        parts = urlsplit(self.redis_url)
        if parts.scheme == "rediss":
            named = dict(parse_qsl(parts.query))
            query = urlencode({"ssl_cert_reqs": "required", "ssl_check_hostname": "true", **named})
            return urlunsplit(parts._replace(query=query))
        if parts.scheme != "unix":
            return self.redis_url
        query = urlencode([("virtual_host" if name == "db" else name, value) for name, value in parse_qsl(parts.query)])
        return f"redis+socket://{parts.netloc}{parts.path}" + (f"?{query}" if query else "")

    @classmethod
    def read(cls) -> Environment:
        """Environment first, then what `manage.py up` wrote, then loopback defaults."""
        directory = state_dir()
        written = written_addresses(directory)

        def address(name: str, default: str) -> str:
            return os.environ.get(name) or written.get(name) or default

        def of_zookeeper(name: str) -> str:
            # What was written belongs to the ZooKeeper that was written beside it.
            is_written = os.environ.get("ZOOKEEPER_URL") in (None, "", written.get("ZOOKEEPER_URL"))
            return os.environ.get(name) or (written.get(name, "") if is_written else "")

        internal_tls_dir = Path(
            os.environ.get("PENSTOCK_INTERNAL_TLS_DIR") or directory / SECRETS_DIR / INTERNAL_TLS_DIR
        )
        own = process_identity.control(os.environ.get(PROCESS_VARIABLE) or "command")
        kept = os.environ.get("SECRET_KEY") or read_secret(directory, "secret_key")
        return cls(
            state_dir=directory,
            secret_key=kept or secrets.token_urlsafe(SECRET_BYTES),
            secret_key_is_kept=kept is not None,
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
                os.environ.get("PENSTOCK_INTERNAL_CERTIFICATE_FILE") or internal_tls_dir / own.file_name
            ),
        )
