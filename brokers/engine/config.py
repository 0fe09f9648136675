"""Configuration of one broker process: the settings in the file that the agent writes, and named default limits."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final, Literal, get_args

from brokers.contract.connections import CONNECTIONS_PER_INSTANCE_MAX, CREATIONS_PER_INSTANCE_PER_S_MAX
from brokers.contract.process import BrokerProcessSettings
from brokers.contract.process_identity import MUTUAL_TLS, PLAINTEXT, SECURITIES
from brokers.contract.zookeeper_access import Credentials, read_credentials
from brokers.contract.zookeeper_tls import ZooKeeperTls, zookeeper_tls
from brokers.engine.compatibility import client_id_defaults, with_profile
from brokers.engine.errors import SettingsWrong
from quotas.pacing import BURST_MS
from quotas.rates import SAMPLE_COUNT, SAMPLE_WIDTH_MS, SampleSettings

CONNECTIONS_MAX = 20_000
# Limit of one address of one instance: by default, as in Kafka, none of its own.
CONNECTIONS_PER_ADDRESS_MAX = 2**31 - 1
# New connections per second. A broker accepts several thousand if it does nothing else.
CREATIONS_PER_S_MAX = 2_000
CONNECTIONS_IDLE_MS_MAX = 600_000
FRAME_BYTES_MAX = 104_857_600
FETCH_BYTES_MAX = 57_671_680
RETENTION_INTERVAL_MS = 300_000
REPLICA_LAG_MS_MAX = 30_000
# Replication is not throttled by default.
REPLICATION_BYTES_PER_S_MAX = 2**63 - 1
CONTROLLED_SHUTDOWN_TIMEOUT_MS = 3_000
# Re-authentication is not required by default.
MAX_REAUTH_MS = 0
SECRET_CHARS_MIN = 16
# Number of samples of a rate: one is no window, and each takes memory for every limited client.
QUOTA_WINDOWS_MIN = 2
QUOTA_WINDOWS_MAX = 1_000
QUOTA_WINDOW_S_MAX = 3_600

_NUMBERS = {
    "replica.lag.time.max.ms": REPLICA_LAG_MS_MAX,
    "leader.replication.throttled.rate": REPLICATION_BYTES_PER_S_MAX,
    "follower.replication.throttled.rate": REPLICATION_BYTES_PER_S_MAX,
    "max.connections": CONNECTIONS_MAX,
    "max.connections.per.instance": CONNECTIONS_PER_INSTANCE_MAX,
    "max.connections.per.ip": CONNECTIONS_PER_ADDRESS_MAX,
    "max.connection.creation.rate": CREATIONS_PER_S_MAX,
    "max.connection.creation.rate.per.instance": CREATIONS_PER_INSTANCE_PER_S_MAX,
    "connections.max.idle.ms": CONNECTIONS_IDLE_MS_MAX,
    "socket.request.max.bytes": FRAME_BYTES_MAX,
    "fetch.max.bytes": FETCH_BYTES_MAX,
    "log.retention.check.interval.ms": RETENTION_INTERVAL_MS,
    "controlled.shutdown.timeout.ms": CONTROLLED_SHUTDOWN_TIMEOUT_MS,
}
# Setting that selects the replica from which clients with a rack read. Kafka's own default is the leader.
REPLICA_SELECTOR = "replica.selector.class"
RACK_AWARE_SELECTOR = "org.apache.kafka.common.replica.RackAwareReplicaSelector"
LEADER_SELECTOR = "org.apache.kafka.common.replica.LeaderSelector"
# Setting that decides when a throttled client is answered (DEC-17).
DELAY_STYLE = "quota.delay.style"
AFTER_RESPONSE = "after_response"
BEFORE_RESPONSE = "before_response"
QUOTA_CALLBACK = "client.quota.callback.class"
QUOTA_WINDOWS = "quota.window"
CONTROLLER_QUOTA_WINDOWS = "controller.quota.window"
# The strategies by which replicas are assigned to brokers (ASG-4).
Strategy = Literal["random_shift", "round_robin"]
STRATEGIES: Final = frozenset(get_args(Strategy))
STRATEGY_KEY: Final = "replica.assignment.strategy"
STRATEGY_DEFAULT: Final[Strategy] = "random_shift"


@dataclass(frozen=True, slots=True, kw_only=True)
class EngineConfig:
    """Configuration of the engine. `overrides` has the broker-level Kafka settings as given, for topic defaults."""

    broker_id: int
    cluster_id: str
    zookeeper: str
    session_timeout_ms: int
    data_dirs: tuple[Path, ...]
    bind_host: str
    internal_host: str
    internal_port: int
    admin_port: int
    rack: str | None
    control_secret: str
    overrides: Mapping[str, str]
    connections_max: int
    connections_per_instance_max: int
    connections_per_address_max: int
    creations_per_s_max: int
    creations_per_instance_per_s_max: int
    connections_idle_ms_max: int
    frame_bytes_max: int
    fetch_bytes_max: int
    quota_burst_ms: int
    quota_window: SampleSettings
    controller_quota_window: SampleSettings
    # Name of an entry point (`throttling.quota_callback`).
    quota_callback: str | None
    retention_interval_ms: int
    controlled_shutdown_timeout_ms: int
    replica_lag_ms_max: int
    leader_throttle_bytes_per_s: int
    follower_throttle_bytes_per_s: int
    # True if clients with a rack read from followers in it (`replica.selector.class`).
    selects_by_rack: bool = True
    # True if throttled responses are held back, instead of muting the connection after them.
    delays_responses: bool = False
    # The setting `connections.max.reauth.ms`.
    max_reauth_ms: int = MAX_REAUTH_MS
    # Level 9 of client quotas: limits of each client id that none of the eight levels covers.
    client_id_defaults: Mapping[str, float] = field(default_factory=dict)
    # Set if ZooKeeper uses access lists.
    zookeeper_credentials: Credentials | None = None
    zookeeper_control_digest: str = ""
    zookeeper_tls: ZooKeeperTls | None = None
    # Key and certificate of this broker; its routes have no TLS without it.
    tls_certificate_file: Path | None = None
    # Authentication between the processes of the installation, and the certificate for it.
    internal_security: str = PLAINTEXT
    internal_certificate_file: Path | None = None
    internal_ca_file: Path | None = None
    # Set for a gateway: the file with its upstream cluster.
    upstream_file: Path | None = None

    def __repr__(self) -> str:
        return f"EngineConfig(broker_id={self.broker_id}, cluster_id={self.cluster_id!r})"


def read(file: Path) -> EngineConfig:
    """Returns the configuration of the process whose settings are in `file`.

    Raises:
        SettingsWrong: the file is unreadable or incomplete, or has an invalid value.
    """
    try:
        settings = BrokerProcessSettings.read(file)
    except OSError as error:
        raise SettingsWrong(f"cannot read the settings {file}: {error.strerror}") from error
    except (json.JSONDecodeError, TypeError, KeyError) as error:
        raise SettingsWrong(f"the settings {file} are not usable: {error}") from error
    return from_settings(settings)


def from_settings(settings: BrokerProcessSettings) -> EngineConfig:
    """Returns the configuration for settings that are already loaded. Raises SettingsWrong for an invalid value."""
    if not settings.data_dirs:
        raise SettingsWrong("data_dirs names no directory")
    overrides = with_profile(settings.overrides)
    numbers = {key: _number(key, overrides.get(key), default) for key, default in _NUMBERS.items()}
    return EngineConfig(
        broker_id=settings.broker_id,
        cluster_id=settings.cluster_id,
        zookeeper=settings.zookeeper,
        session_timeout_ms=settings.session_timeout_ms,
        data_dirs=tuple(Path(directory) for directory in settings.data_dirs),
        bind_host=settings.bind_host,
        internal_host=settings.internal_host,
        internal_port=settings.internal_port,
        admin_port=settings.admin_port,
        rack=settings.rack,
        control_secret=_secret(settings),
        zookeeper_credentials=_zookeeper_credentials(settings.zookeeper_credentials_file),
        zookeeper_control_digest=settings.zookeeper_control_digest,
        zookeeper_tls=zookeeper_tls(settings.zookeeper_ca_file, settings.zookeeper_certificate_file),
        tls_certificate_file=Path(settings.tls_certificate_file) if settings.tls_certificate_file else None,
        internal_security=settings.internal_security,
        internal_certificate_file=_internal_file(settings, settings.internal_certificate_file),
        internal_ca_file=_internal_file(settings, settings.internal_ca_file),
        upstream_file=Path(settings.upstream_file) if settings.upstream_file else None,
        overrides=overrides,
        connections_max=numbers["max.connections"],
        connections_per_instance_max=numbers["max.connections.per.instance"],
        connections_per_address_max=numbers["max.connections.per.ip"],
        creations_per_s_max=numbers["max.connection.creation.rate"],
        creations_per_instance_per_s_max=numbers["max.connection.creation.rate.per.instance"],
        connections_idle_ms_max=numbers["connections.max.idle.ms"],
        frame_bytes_max=numbers["socket.request.max.bytes"],
        fetch_bytes_max=numbers["fetch.max.bytes"],
        quota_burst_ms=_burst(overrides),
        quota_window=_window(QUOTA_WINDOWS, overrides),
        controller_quota_window=_window(CONTROLLER_QUOTA_WINDOWS, overrides),
        client_id_defaults=client_id_defaults(overrides),
        quota_callback=overrides.get(QUOTA_CALLBACK) or None,
        selects_by_rack=_selects_by_rack(overrides),
        delays_responses=_delays_responses(overrides),
        retention_interval_ms=numbers["log.retention.check.interval.ms"],
        controlled_shutdown_timeout_ms=numbers["controlled.shutdown.timeout.ms"],
        replica_lag_ms_max=numbers["replica.lag.time.max.ms"],
        leader_throttle_bytes_per_s=numbers["leader.replication.throttled.rate"],
        follower_throttle_bytes_per_s=numbers["follower.replication.throttled.rate"],
        max_reauth_ms=_max_reauth(overrides),
    )


def _number(key: str, value: str | None, default: int) -> int:
    if value is None:
        return default
    try:
        number = int(value)
    except ValueError:
        raise SettingsWrong(f"{key} is not a whole number: {value!r}") from None
    if number <= 0:
        raise SettingsWrong(f"{key} must be positive, not {number}")
    return number


def _burst(overrides: Mapping[str, str]) -> int:
    """Returns `quota.burst.ms`: the time by which a client may run ahead of its limit; -1: Kafka's window alone."""
    value = overrides.get("quota.burst.ms", str(BURST_MS))
    return -1 if value == "-1" else _number("quota.burst.ms", value, BURST_MS)


def _window(prefix: str, overrides: Mapping[str, str]) -> SampleSettings:
    """Returns the sample window of a rate from `<prefix>.num` and `<prefix>.size.seconds` (QUO-9)."""
    count_key, width_key = f"{prefix}.num", f"{prefix}.size.seconds"
    count = _number(count_key, overrides.get(count_key), SAMPLE_COUNT)
    width_s = _number(width_key, overrides.get(width_key), SAMPLE_WIDTH_MS // 1000)
    if not QUOTA_WINDOWS_MIN <= count <= QUOTA_WINDOWS_MAX:
        raise SettingsWrong(f"{count_key} is from {QUOTA_WINDOWS_MIN} to {QUOTA_WINDOWS_MAX}, not {count}")
    if width_s > QUOTA_WINDOW_S_MAX:
        raise SettingsWrong(f"{width_key} is at most {QUOTA_WINDOW_S_MAX}, not {width_s}")
    return SampleSettings(count, width_s * 1000)


def _selects_by_rack(overrides: Mapping[str, str]) -> bool:
    value = overrides.get(REPLICA_SELECTOR) or RACK_AWARE_SELECTOR
    if value not in (RACK_AWARE_SELECTOR, LEADER_SELECTOR):
        raise SettingsWrong(f"{REPLICA_SELECTOR} is {RACK_AWARE_SELECTOR} or {LEADER_SELECTOR}, not {value!r}")
    return value == RACK_AWARE_SELECTOR


def _delays_responses(overrides: Mapping[str, str]) -> bool:
    value = overrides.get(DELAY_STYLE, AFTER_RESPONSE)
    if value not in (AFTER_RESPONSE, BEFORE_RESPONSE):
        raise SettingsWrong(f"{DELAY_STYLE} is {AFTER_RESPONSE} or {BEFORE_RESPONSE}, not {value!r}")
    return value == BEFORE_RESPONSE


def _max_reauth(overrides: Mapping[str, str]) -> int:
    """Returns `connections.max.reauth.ms`: the lifetime of a connection without re-authentication; 0 is unlimited."""
    value = overrides.get("connections.max.reauth.ms", str(MAX_REAUTH_MS))
    return 0 if value == "0" else _number("connections.max.reauth.ms", value, MAX_REAUTH_MS)


def _zookeeper_credentials(file: str) -> Credentials | None:
    if not file:
        return None
    try:
        return read_credentials(Path(file))
    except OSError as error:
        raise SettingsWrong(f"cannot read ZooKeeper's credentials {file}: {error.strerror}") from error
    except ValueError as error:
        raise SettingsWrong(str(error)) from error


def _internal_file(settings: BrokerProcessSettings, name: str) -> Path | None:
    if settings.internal_security not in SECURITIES:
        raise SettingsWrong(f"internal_security is one of {', '.join(SECURITIES)}, not {settings.internal_security!r}")
    if settings.internal_security == PLAINTEXT:
        return None
    if not name or not Path(name).is_file():
        raise SettingsWrong(
            f"there is no certificate for the internal listener at {name or 'no path'}: let `manage.py up` or "
            "`manage.py issue_certificate` make it"
        )
    return Path(name)


def _secret(settings: BrokerProcessSettings) -> str:
    """Returns the control secret, "" if there is none.

    With mutual TLS the file may be missing, because only processes without a certificate use the secret then.
    """
    file = settings.control_secret_file
    if settings.internal_security == MUTUAL_TLS and not (file and Path(file).is_file()):
        return ""
    return _read_secret(Path(file))


def _read_secret(file: Path) -> str:
    try:
        secret = file.read_text().strip()
    except OSError as error:
        raise SettingsWrong(f"cannot read the control secret {file}: {error.strerror}") from error
    if len(secret) < SECRET_CHARS_MIN:
        raise SettingsWrong(f"the control secret in {file} is shorter than {SECRET_CHARS_MIN} characters")
    return secret
