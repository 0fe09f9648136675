"""Client for the settings of topics, of single brokers and of all brokers, for operators, with internal names.

Requests are sent as the cluster's own user: DescribeConfigs and IncrementalAlterConfigs (QUO-60).
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Final

from kafka.protocol.admin.configs import DescribeConfigsRequest, IncrementalAlterConfigsRequest

from brokers.dataplane.admin_client import require_ok, send_as_cluster
from brokers.dataplane.topics import (
    ALTER_CONFIGS_VERSION,
    DELETE,
    DESCRIBE_CONFIGS_VERSION,
    SET,
    TOPIC_CONFIG_SOURCE,
    TOPIC_RESOURCE,
)
from brokers.models import Cluster

BROKER_RESOURCE = 4
# Resource name for all brokers.
ALL_BROKERS = ""
OF_ALL_BROKERS_SOURCE = 3
UNKNOWN_TOPIC = 3

# None removes a setting.
Changes = Mapping[str, str | None]

# Names of the levels at which a setting may have a value, by the numbers of DescribeConfigs.
BROKER, CLUSTER, START, DEFAULT = "broker", "cluster", "start", "default"
LEVELS: Final = {2: BROKER, OF_ALL_BROKERS_SOURCE: CLUSTER, 4: START, 5: DEFAULT}
TYPES: Final = {
    1: "boolean", 2: "string", 3: "integer", 4: "short", 5: "long", 6: "double", 7: "list", 8: "class", 9: "password",
}  # fmt: skip


@dataclass(frozen=True, slots=True, kw_only=True)
class BrokerSettingView:
    """A setting of one broker: the value in force with its level, and the values at all levels that have one.

    `value` is None for a setting that has no default and is not set.
    """

    name: str
    type: str
    value: str | None
    level: str
    values: Mapping[str, str]
    is_changeable: bool
    documentation: str


class SettingsAdminClient:
    """Client of settings. All methods raise `tenants.errors.Unavailable` if no broker answers.

    A refusal by a broker raises the domain error for its Kafka error code.
    """

    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster

    def of_broker(self, number: int) -> list[BrokerSettingView]:
        """Returns every setting of a broker, by name."""
        resource = DescribeConfigsRequest.DescribeConfigsResource
        request = DescribeConfigsRequest(
            resources=[
                resource(resource_type=BROKER_RESOURCE, resource_name=str(number), configuration_keys=None),
            ],
            include_synonyms=True,
            include_documentation=True,
            version=DESCRIBE_CONFIGS_VERSION,
        )
        (result,) = send_as_cluster(self._cluster, request, broker=number).results
        require_ok(result.error_code, result.error_message)
        return [_view(setting) for setting in result.configs]

    def of_all_brokers(self, keys: Collection[str]) -> dict[str, str]:
        """Returns the settings of all brokers by key."""
        (result,) = self._describe(BROKER_RESOURCE, [ALL_BROKERS], keys, OF_ALL_BROKERS_SOURCE).values()
        return result

    def of_topics(self, topics: Iterable[str], keys: Collection[str]) -> dict[str, dict[str, str]]:
        """Returns the settings of topics by topic and key, without deleted topics."""
        return self._describe(TOPIC_RESOURCE, list(topics), keys, TOPIC_CONFIG_SOURCE)

    def set_for_all_brokers(self, changes: Changes, *, dry_run: bool = False) -> None:
        self._alter(BROKER_RESOURCE, {ALL_BROKERS: changes}, dry_run=dry_run)

    def set_for_broker(self, number: int, changes: Changes, *, dry_run: bool = False) -> None:
        self._alter(BROKER_RESOURCE, {str(number): changes}, broker=number, dry_run=dry_run)

    def set_for_topics(self, changes: Mapping[str, Changes]) -> None:
        """Sets settings of topics; deleted topics are skipped."""
        self._alter(TOPIC_RESOURCE, changes)

    def _describe(self, kind: int, names: list[str], keys: Collection[str], source: int) -> dict[str, dict[str, str]]:
        resource = DescribeConfigsRequest.DescribeConfigsResource
        request = DescribeConfigsRequest(
            resources=[
                resource(resource_type=kind, resource_name=name, configuration_keys=list(keys)) for name in names
            ],
            include_synonyms=False,
            include_documentation=False,
            version=DESCRIBE_CONFIGS_VERSION,
        )
        settings_by_name = {}
        for result in send_as_cluster(self._cluster, request).results:
            if _is_gone(kind, result):
                continue
            require_ok(result.error_code, result.error_message)
            settings = (setting for setting in result.configs if setting.config_source == source)
            settings_by_name[result.resource_name] = {setting.name: setting.value for setting in settings}
        return settings_by_name

    def _alter(
        self, kind: int, changes: Mapping[str, Changes], *, broker: int | None = None, dry_run: bool = False
    ) -> None:
        resource_class = IncrementalAlterConfigsRequest.AlterConfigsResource
        resources = [
            resource_class(
                resource_type=kind,
                resource_name=name,
                configs=[
                    resource_class.AlterableConfig(
                        name=key, config_operation=DELETE if value is None else SET, value=value
                    )
                    for key, value in values.items()
                ],
            )
            for name, values in changes.items()
        ]
        request = IncrementalAlterConfigsRequest(
            resources=resources, validate_only=dry_run, version=ALTER_CONFIGS_VERSION
        )
        for result in send_as_cluster(self._cluster, request, broker=broker).responses:
            if not _is_gone(kind, result):
                require_ok(result.error_code, result.error_message)


def _view(setting: Any) -> BrokerSettingView:
    level = LEVELS.get(setting.config_source, DEFAULT)
    # Synonyms with other names are values of keys in other units.
    values = {LEVELS[synonym.source]: synonym.value for synonym in setting.synonyms if synonym.name == setting.name}
    if setting.value is not None:
        values.setdefault(level, setting.value)
    return BrokerSettingView(
        name=setting.name,
        type=TYPES.get(setting.config_type, "string"),
        value=setting.value,
        level=level,
        values=values,
        is_changeable=not setting.read_only,
        documentation=setting.documentation or "",
    )


def _is_gone(kind: int, result: Any) -> bool:
    return kind == TOPIC_RESOURCE and bool(result.error_code == UNKNOWN_TOPIC)
