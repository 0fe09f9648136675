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
from brokers.engine.assembly.disk_floor import DiskFloor, floor_from_overrides
from brokers.engine.assembly.metering import Metering, record_version
from brokers.engine.assembly.replication import Replication
from brokers.engine.cluster.image import ClusterImage
from brokers.engine.cluster.placement_strategies import Strategy
from brokers.engine.config import EngineConfig
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

    def take(self, effective: Effective) -> None:
        """Parses the settings, and applies the result if it changed. Raises SettingsWrong."""
        wanted = self.parse(effective)
        if wanted != self._present:
            self._present = wanted
            self._apply(wanted)


class DynamicSettings:
    """Keeps `MetadataServices.broker_layers` up to date with the metadata."""

    def __init__(self, config: EngineConfig, services: BrokerServices) -> None:
        self._services = services
        self._broker_id = config.broker_id
        self._takers: list[_SettingsUser] = []
        self._ignored: dict[str, str] = {}
        services.metadata.broker_layers = BrokerLayers(static=_static(config))
        services.metadata.check_settings = self.check
        services.metadata.current.subscribe(self._on_image)

    def give(self, parse: Callable[[Effective], Any], apply: Callable[[Any], object]) -> None:
        """Registers a user of settings, which is assumed to use the static settings so far. `parse` raises
        SettingsWrong for invalid combinations.
        """
        layers = self._services.metadata.broker_layers
        taker = _SettingsUser(parse, apply, layers.static)
        self._takers.append(taker)
        _apply_to(taker, layers.effective)

    def check(self, effective: Effective) -> None:
        """Checks new settings. Raises SettingsWrong if a user cannot apply them, unless it has the same fault already:
        a change that corrects one setting need not correct all.
        """
        present = self._services.metadata.broker_layers.effective
        for taker in self._takers:
            fault = _fault(taker, effective)
            if fault is not None and fault != _fault(taker, present):
                raise SettingsWrong(fault)

    def _on_image(self, before: ClusterImage, after: ClusterImage) -> None:
        if after.broker_configs is before.broker_configs:
            return
        configs, layers = after.broker_configs, self._services.metadata.broker_layers
        ignored: dict[str, str] = {}
        dynamic = self._usable("own", configs.own(self._broker_id), ignored)
        dynamic_default = self._usable("all", configs.of_all, ignored)
        self._ignored = ignored
        if (dynamic, dynamic_default) == (layers.dynamic, layers.dynamic_default):
            return
        was = layers.effective
        layers = self._services.metadata.broker_layers = replace(
            layers, dynamic=dynamic, dynamic_default=dynamic_default
        )
        effective = layers.effective
        changed = [key for key in {*was, *effective} if was.get(key) != effective.get(key)]
        log.info("broker_settings_changed", values={key: effective.get(key) for key in sorted(changed)})
        for taker in self._takers:
            _apply_to(taker, effective)

    def _usable(self, whose: str, values: Effective, ignored: dict[str, str]) -> dict[str, str]:
        kept, reasons = broker_settings.split_valid(values)
        for key, reason in reasons.items():
            ignored[f"{whose}/{key}"] = reason
            if self._ignored.get(f"{whose}/{key}") != reason:
                log.warning("broker_setting_ignored", key=key, of=whose, reason=reason)
        return kept


def _fault(taker: _SettingsUser, effective: Effective) -> str | None:
    """Returns the reason why this user cannot apply the settings, None if it can."""
    try:
        taker.parse(effective)
    except SettingsWrong as error:
        return str(error)
    return None


def _apply_to(taker: _SettingsUser, effective: Effective) -> None:
    try:
        taker.take(effective)
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


def plug(
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
        services.storage.table.keep_min_isr(not advances)

    def use_strategy(strategy: Strategy) -> None:
        services.metadata.store.place = Placer(secrets.randbelow, strategy)

    # The parts that use these two were created with their defaults, so the static settings are applied first.
    for key, use in ((DELETION, use_deletion), (WATERMARK, use_watermark)):
        is_on = partial(_is_on, key)
        use(is_on(services.metadata.broker_layers.static))
        dynamic.give(is_on, use)
    dynamic.give(topic_defaults, use_defaults)
    dynamic.give(strategy_from, use_strategy)
    dynamic.give(lambda effective: tuple(int(effective.get(key, UNLIMITED)) for key in _RATES), use_rates)
    dynamic.give(policy.from_overrides, controller.use_policy)
    dynamic.give(coordinator_settings.verifies_partitions, use_verification)
    dynamic.give(coordinator_settings.group_settings, use_groups)


def _is_on(key: str, effective: Effective) -> bool:
    """Returns a setting that is on by default. Raises SettingsWrong for a value that is no boolean."""
    value = effective.get(key, "true").strip().lower()
    if value not in ("true", "false"):
        raise SettingsWrong(f"{key} is neither true nor false: {value!r}")
    return value == "true"


def plug_disk_floor(dynamic: DynamicSettings, floor: DiskFloor) -> None:
    def use(floor_bytes: int) -> None:
        floor.floor_bytes = floor_bytes

    dynamic.give(floor_from_overrides, use)


def plug_metering(dynamic: DynamicSettings, metering: Metering) -> None:
    def use(version: int) -> None:
        metering.record_version = version

    dynamic.give(record_version, use)


def plug_cleaning(dynamic: DynamicSettings, cleaning: LogCleaning) -> None:
    dynamic.give(cleaner_settings.from_overrides, cleaning.use)
