"""Dynamic settings: changes of the broker's settings in the metadata are passed to the parts that use them (QUO-60).

The subscription is the first one, so that new partitions are created with the new settings. Invalid values are logged
and ignored (QUO-75), and so are invalid combinations: the former values stay in effect.
"""

from __future__ import annotations

import secrets
from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import partial
from typing import Any, Final

import structlog

from brokers.engine.assembly.cleaning import LogCleaning
from brokers.engine.assembly.free_space_monitor import FreeSpaceMonitor, free_bytes_min_from
from brokers.engine.assembly.metering import Metering, record_version
from brokers.engine.assembly.replication import Replication
from brokers.engine.cluster.image import ClusterImage
from brokers.engine.config import EngineConfig, Strategy
from brokers.engine.controller import policy
from brokers.engine.controller.loop import ControllerLoop
from brokers.engine.controller.placement import Placer, strategy_from
from brokers.engine.coordinators import settings as coordinator_settings
from brokers.engine.errors import SettingsWrong
from brokers.engine.handlers.configs import broker_settings
from brokers.engine.handlers.configs.broker_settings import DELETION, FOLLOWER_RATE, LEADER_RATE, WATERMARK
from brokers.engine.handlers.services import BrokerLayers, BrokerServices
from brokers.engine.partitions.topic_config import topic_defaults
from brokers.engine.storage.compaction import settings as cleaner_settings
from brokers.engine.throttling.replication import UNLIMITED

log = structlog.get_logger(__name__)

Effective = Mapping[str, str]


class _SettingsUser:
    """A part of the broker that uses settings: `apply` is called with the result of `parse` whenever that changes."""

    def __init__(self, parse: Callable[[Effective], Any], apply: Callable[[Any], object], present: Effective) -> None:
        self.parse = parse
        self._apply = apply
        self._present = parse(present)

    def update(self, effective: Effective) -> None:
        """Parses the settings, and applies the result if it changed. Raises SettingsWrong."""
        parsed = self.parse(effective)
        if parsed != self._present:
            self._present = parsed
            self._apply(parsed)


class DynamicSettings:
    """Keeps `MetadataServices.broker_layers` up to date with the metadata."""

    def __init__(self, config: EngineConfig, services: BrokerServices) -> None:
        self._services = services
        self._broker_id = config.broker_id
        self._users: list[_SettingsUser] = []
        self._ignored: dict[str, str] = {}
        services.metadata.broker_layers = BrokerLayers(static=_static(config))
        services.metadata.check_settings = self.check
        services.metadata.current.subscribe(self._on_image)

    def register(self, parse: Callable[[Effective], Any], apply: Callable[[Any], object]) -> None:
        """Registers a user of settings, which is assumed to use the static settings so far. `parse` raises
        SettingsWrong for invalid combinations.
        """
        layers = self._services.metadata.broker_layers
        user = _SettingsUser(parse, apply, layers.static)
        self._users.append(user)
        _apply_to(user, layers.effective)

    def check(self, effective: Effective) -> None:
        """Checks new settings. Raises SettingsWrong if a user cannot apply them, unless it has the same fault already:
        a change that corrects one setting need not correct all.
        """
        present = self._services.metadata.broker_layers.effective
        for user in self._users:
            fault = _fault(user, effective)
            if fault is not None and fault != _fault(user, present):
                raise SettingsWrong(fault)

    def _on_image(self, before: ClusterImage, after: ClusterImage) -> None:
        if after.broker_configs is before.broker_configs:
            return
        configs, layers = after.broker_configs, self._services.metadata.broker_layers
        ignored: dict[str, str] = {}
        dynamic = self._usable("own", configs.of_broker(self._broker_id), ignored)
        dynamic_default = self._usable("all", configs.cluster_defaults, ignored)
        self._ignored = ignored
        if (dynamic, dynamic_default) == (layers.dynamic, layers.dynamic_default):
            return
        previous = layers.effective
        layers = self._services.metadata.broker_layers = replace(
            layers, dynamic=dynamic, dynamic_default=dynamic_default
        )
        effective = layers.effective
        changed = [key for key in {*previous, *effective} if previous.get(key) != effective.get(key)]
        log.info("broker_settings_changed", values={key: effective.get(key) for key in sorted(changed)})
        for user in self._users:
            _apply_to(user, effective)

    def _usable(self, scope: str, values: Effective, ignored: dict[str, str]) -> dict[str, str]:
        kept, reasons = broker_settings.split_valid(values)
        for key, reason in reasons.items():
            ignored[f"{scope}/{key}"] = reason
            if self._ignored.get(f"{scope}/{key}") != reason:
                log.warning("broker_setting_ignored", key=key, of=scope, reason=reason)
        return kept


def _fault(user: _SettingsUser, effective: Effective) -> str | None:
    """Returns the reason why this user cannot apply the settings, None if it can."""
    try:
        user.parse(effective)
    except SettingsWrong as error:
        return str(error)
    return None


def _apply_to(user: _SettingsUser, effective: Effective) -> None:
    try:
        user.update(effective)
    except SettingsWrong as error:
        log.warning("broker_settings_kept", reason=str(error))


def _static(config: EngineConfig) -> dict[str, str]:
    """Returns the settings that the broker was started with, under the names that operators use."""
    result = dict(config.overrides)
    result["broker.id"] = str(config.broker_id)
    result["log.dirs"] = ",".join(str(directory) for directory in config.data_dirs)
    if config.rack is not None:
        result["broker.rack"] = config.rack
    return result


# --- users of settings ------------------------------------------------------------------------------------------------

_RATES: Final = (LEADER_RATE, FOLLOWER_RATE)


def register_parts(
    dynamic: DynamicSettings, services: BrokerServices, replication: Replication, controller: ControllerLoop
) -> None:
    """Registers all users but the cleaner, which runs only if it is enabled."""

    def use_defaults(defaults: dict[str, str]) -> None:
        topics = services.metadata.current.image.topics
        services.metadata.topic_defaults = defaults
        services.storage.table.use_defaults(defaults, lambda name: topics[name].config if name in topics else {})

    def use_rates(rates: tuple[int, int]) -> None:
        """Changes the existing throttles, so that recent replication counts against the new rates (QUO-7)."""
        services.storage.replication_throttle.limit_bytes_per_s, replication.follower_throttle.limit_bytes_per_s = rates

    def use_verification(is_on: bool) -> None:
        settings = services.coordination.settings
        services.coordination.settings = replace(
            settings, transactions=replace(settings.transactions, verifies_partitions=is_on)
        )

    def use_groups(groups: coordinator_settings.GroupSettings) -> None:
        services.coordination.settings = replace(services.coordination.settings, groups=groups)

    def use_deletion(is_on: bool) -> None:
        services.metadata.deletes_topics = is_on

    def use_watermark(advances: bool) -> None:
        services.storage.table.set_keeps_min_isr(not advances)

    def use_strategy(strategy: Strategy) -> None:
        services.metadata.store.assign_replicas = Placer(secrets.randbelow, strategy)

    # The parts that use these two were created with their defaults, so the static settings are applied first.
    for key, use in ((DELETION, use_deletion), (WATERMARK, use_watermark)):
        is_on = partial(_is_on, key)
        use(is_on(services.metadata.broker_layers.static))
        dynamic.register(is_on, use)
    dynamic.register(topic_defaults, use_defaults)
    dynamic.register(strategy_from, use_strategy)
    dynamic.register(lambda effective: tuple(int(effective.get(key, UNLIMITED)) for key in _RATES), use_rates)
    dynamic.register(policy.from_overrides, controller.use_policy)
    dynamic.register(coordinator_settings.verifies_partitions, use_verification)
    dynamic.register(coordinator_settings.group_settings, use_groups)


def _is_on(key: str, effective: Effective) -> bool:
    """Returns a setting that is on by default. Raises SettingsWrong for a value that is no boolean."""
    value = effective.get(key, "true").strip().lower()
    if value not in ("true", "false"):
        raise SettingsWrong(f"{key} is neither true nor false: {value!r}")
    return value == "true"


def register_free_space_monitor(dynamic: DynamicSettings, floor: FreeSpaceMonitor) -> None:
    def use(free_bytes_min: int) -> None:
        floor.free_bytes_min = free_bytes_min

    dynamic.register(free_bytes_min_from, use)


def register_metering(dynamic: DynamicSettings, metering: Metering) -> None:
    def use(version: int) -> None:
        metering.record_version = version

    dynamic.register(record_version, use)


def register_cleaning(dynamic: DynamicSettings, cleaning: LogCleaning) -> None:
    dynamic.register(cleaner_settings.from_overrides, cleaning.use)
