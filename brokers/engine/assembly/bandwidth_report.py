"""Bandwidth figures for the admin port: the instance's bandwidth, this broker's share with its reason, and demand."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final

from brokers.engine.assembly.flow_control import FlowControl
from brokers.engine.cluster.image import ClusterImage
from brokers.engine.handlers.services import BrokerServices
from brokers.engine.telemetry.metrics import Sample
from brokers.engine.throttling.flow_share import FlowShare, Reason

# Reasons for a share by precedence: the first that applies to either direction is reported.
_REASONS: Final[tuple[Reason, ...]] = ("no_answer", "layout_changed", "follows_demand", "not_reported", "static")


def flow_master(image: ClusterImage) -> dict[str, int]:
    return {"broker_id": image.flow_master_id, "epoch": image.flow_master_epoch}


def of_instance(services: BrokerServices, instance_id: str, loop_used_ms: int) -> dict[str, Any]:
    """Returns the bandwidth of a known instance on this broker. A broker that leads none of its partitions has no
    share. `loop_used_ms` is the event loop time charged to it.
    """
    image = services.metadata.current.image
    document = image.instances[instance_id].document
    shares = services.accounting.accountings.get_or_create(instance_id).shares
    reasons = {flow.reason for flow in shares.flows if flow is not None}
    produce, consume = shares.flows or (None, None)
    return {
        "now_ms": services.clock.now_ms(),
        "flow_master": flow_master(image),
        "policy": document.bandwidth_policy,
        "reason": next((reason for reason in _REASONS if reason in reasons), "static"),
        "loop_used_ms": loop_used_ms,
        "loop_weight": services.accounting.loop_weights.instance_weight(instance_id),
        "produce": _direction(document.produce_bps, produce, shares.leaders),
        "consume": _direction(document.consume_bps, consume, shares.leaders),
    }


def _direction(bought_bps: int, flow: FlowShare | None, leaders: int) -> dict[str, int]:
    return {
        "bought_bps": bought_bps,
        "share_bps": 0 if flow is None else int(flow.share_bps),
        "wanted_bps": 0 if flow is None else max(0, flow.wanted_bps),
        "admitted_bps": 0 if flow is None else max(0, flow.admitted_bps),
        "leaders": leaders,
    }


def samples(flow: FlowControl) -> Iterator[Sample]:
    """Yields the samples of shares that follow demand on this broker; idle instances have none."""
    text = "1 if this broker is flow master."
    yield Sample("penstock_broker_is_flow_master", "gauge", text, int(flow.is_flow_master))
    text = "Limits that this broker shares out as flow master."
    yield Sample("penstock_broker_limits_shared_out", "gauge", text, flow.limits_shared_out)
    text = "Reports to the flow master, by what became of them."
    for outcome, count in (("answered", flow.reports_answered), ("lost", flow.reports_lost)):
        yield Sample("penstock_broker_flow_reports", "counter", text, count, (("outcome", outcome),))
    following = sorted(flow.assigned_shares(), key=lambda item: item[:2])
    text = "Bandwidth of an instance on this broker as the flow master gave it, bytes/s."
    for instance_id, direction, share in following:
        labels = (("instance", instance_id), ("direction", direction))
        yield Sample("penstock_broker_share_bytes_per_second", "gauge", text, int(share.share_bps), labels)
    text = "What clients of an instance would move on this broker without waiting for its bandwidth, bytes/s."
    for instance_id, direction, share in following:
        labels = (("instance", instance_id), ("direction", direction))
        yield Sample("penstock_broker_wanted_bytes_per_second", "gauge", text, max(0, share.wanted_bps), labels)
