"""Services for operators that read and change settings of one running broker, or of all brokers of a cluster (QUO-60).

Brokers store the settings, like configurations of topics; an admin client on a broker's internal listener may change
them as well. The brokers decide which settings change while they run, and which values are valid.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from brokers.choices import WantedState
from brokers.dataplane.settings import BROKER, CLUSTER, BrokerSettingView, SettingsAdminClient
from brokers.models import Broker, Cluster
from tenants import access, audit
from tenants.actors import Actor
from tenants.choices import Scope
from tenants.errors import Conflict, Unavailable


def settings_of(cluster: Cluster, broker: Broker | None = None) -> Sequence[BrokerSettingView]:
    """Returns every setting of a broker, or, without one, those of the first broker of the cluster that answers.

    Raises `Unavailable` if it does not answer, and `Conflict` for a cluster without brokers.
    """
    client = SettingsAdminClient(cluster)
    if broker is not None:
        return client.of_broker(broker.number)
    numbers = cluster.brokers.filter(wanted=WantedState.RUNNING, removed_at=None).order_by("number")
    failure: Unavailable | None = None
    for number in numbers.values_list("number", flat=True):
        try:
            return client.of_broker(number)
        except Unavailable as error:
            failure = error
    raise failure or Conflict("The cluster has no running broker. Add or start one.", code="no_broker")


def change_settings(
    *,
    acting: Actor,
    cluster: Cluster,
    broker: Broker | None = None,
    changes: Mapping[str, str | None],
    dry_run: bool = False,
) -> Sequence[BrokerSettingView]:
    """Changes settings of one broker, or of all; None removes a value, so that the next level applies.

    Returns the settings afterwards. Raises `Invalid` with the broker's reason for a setting that needs a restart, or a
    value that is not valid: nothing is changed then.
    """
    access.require(acting, Scope.OPERATOR)
    level = CLUSTER if broker is None else BROKER
    before = {view.name: view.values.get(level) for view in settings_of(cluster, broker) if view.name in changes}
    client = SettingsAdminClient(cluster)
    if broker is None:
        client.set_for_all_brokers(changes, dry_run=dry_run)
    else:
        client.set_for_broker(broker.number, changes, dry_run=dry_run)
    if not dry_run:
        audit.record(acting, f"{level}.settings_changed", broker or cluster, before, dict(changes))
    return settings_of(cluster, broker)
