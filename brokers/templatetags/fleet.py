"""Template tags for states of clusters, brokers, rebalances and moves on the operator's pages."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from django import template
from django.utils.html import format_html
from django.utils.safestring import SafeString
from django.utils.translation import gettext as _

from brokers import selectors
from brokers.choices import ClusterState, Health, HostCheckState, ReassignmentState, RebalanceState, RestartState
from brokers.models import Broker, Host
from brokers.monitoring.attention import OperatorActionItem
from brokers.monitoring.cluster_overview import BrokerSummary, ClusterMap
from tenants.templatetags.console import PHASES
from tenants.wording import localized

register = template.Library()

# Style of the console's pill with the same meaning: mark and colour together, never colour alone.
PILL_STYLES: Mapping[str, str] = {
    Health.HEALTHY: "running",
    Health.STARTING: "provisioning",
    Health.LATE: "suspended",
    Health.DISK_OFFLINE: "failed",
    Health.UPSTREAM_LOST: "failed",
    Health.DOWN: "failed",
    Health.STOPPED: "deleting",
    RebalanceState.PLANNED: "requested",
    RebalanceState.RUNNING: "updating",
    RebalanceState.PAUSED: "suspended",
    RebalanceState.UNDOING: "updating",
    RebalanceState.DONE: "running",
    RebalanceState.UNDONE: "deleting",
    RebalanceState.ABANDONING: "updating",
    RebalanceState.ABANDONED: "deleting",
    RebalanceState.DISCARDED: "deleting",
    RestartState.CANCELLED: "deleting",
    ClusterState.FORMING: "provisioning",
    ClusterState.READY: "running",
    ClusterState.RETIRING: "deleting",
    ClusterState.RETIRED: "deleting",
    ReassignmentState.WAITING: "requested",
    ReassignmentState.SKIPPED: "deleting",
    ReassignmentState.LEFT: "deleting",
}


def console_pill(style: str, label: str) -> SafeString:
    """Returns a pill in the style of one of the console's phases, with another label."""
    shape = PHASES[style][1]
    return format_html(
        '<span class="pill {}"><svg viewBox="0 0 10 10" aria-hidden="true">{}</svg>{}</span>',
        style,
        SafeString(shape),
        label,
    )


@register.filter
def translated(sentence: str) -> str:
    """Returns the row's sentence about its progress in the reader's language."""
    return localized(sentence)


@register.simple_tag
def state_pill(row: Any) -> SafeString:
    """Returns the pill for the state of a rebalance, a move or a rolling restart."""
    return console_pill(PILL_STYLES.get(row.state, "requested"), row.get_state_display())


@register.simple_tag
def broker_pill(summary: BrokerSummary) -> SafeString:
    """Returns the pill of a broker; catching up and draining take precedence over its health."""
    if summary.is_draining:
        return console_pill("updating", _("Draining"))
    if summary.health == Health.HEALTHY and summary.out_of_sync:
        return console_pill("suspended", _("Catching up, %(count)s left") % {"count": f"{summary.out_of_sync:,}"})
    return console_pill(PILL_STYLES[summary.health], str(summary.health.label))


@register.simple_tag
def health_pill(broker: Broker) -> SafeString:
    """Returns the pill for the health of a broker from its row."""
    result = selectors.health_of(broker)
    return console_pill(PILL_STYLES[result], str(result.label))


@register.simple_tag
def agent_pill(host: Host) -> SafeString:
    """Returns the pill for the state of a host's agent."""
    if selectors.agent_is_alive(host):
        return console_pill("running", _("Agent runs"))
    return (
        console_pill("failed", _("Agent is silent"))
        if host.agent_seen_at
        else console_pill("requested", _("No agent yet"))
    )


@register.simple_tag
def check_pill(state: HostCheckState) -> SafeString:
    """Returns the pill for the state of a host's check."""
    pill_names = {
        HostCheckState.PASSED: "running",
        HostCheckState.WARNING: "suspended",
        HostCheckState.FAILED: "failed",
    }
    return console_pill(pill_names[state], str(state.label))


@register.simple_tag
def need_pill(need: OperatorActionItem) -> SafeString:
    """Returns the pill for the urgency of an action item."""
    return console_pill("failed", _("Urgent")) if need.is_now else console_pill("suspended", _("Soon"))


@register.simple_tag
def cluster_pill(cluster_map: ClusterMap | None) -> SafeString:
    """Returns the pill for the state of a cluster."""
    if cluster_map is None or not cluster_map.is_known:
        return console_pill("failed", _("Not known"))
    if cluster_map.is_checking:
        return console_pill("provisioning", _("Checking"))
    if not cluster_map.is_safe:
        return console_pill("failed", _("Partitions without a leader"))
    return (
        console_pill("running", _("Healthy"))
        if cluster_map.is_whole
        else console_pill("suspended", _("Degraded, safe"))
    )


@register.filter
def value_or_zero(mapping: Mapping[int, int], key: int) -> int:
    """Returns `mapping[key]`, or 0."""
    return mapping.get(key, 0)


@register.filter
def broker_list(replicas: Sequence[int]) -> str:
    """Returns the replicas as text: `1, 2, 3`."""
    return ", ".join(str(replica) for replica in replicas)
