"""Reads: plans on sale, quotes, and usage as the minute rows tell it."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any, Literal

from django.db.models import F, Max, Q, QuerySet, Sum
from django.db.models.functions import Trunc
from django.utils import timezone

from billing.models import Direction, Plan, Price, UsageMinute, UsageOffset
from billing.pipeline.cluster import Cluster as UsageSource
from billing.rating import Quote, quote
from brokers.contract.process import CLUSTER_USER
from brokers.models import Cluster
from instances.models import Instance
from instances.ports import PlanTerms

Step = Literal["minute", "hour", "day"]
GroupBy = Literal["topic", "user", "client_id"]
STEPS: dict[Step, timedelta] = {
    "minute": timedelta(minutes=1),
    "hour": timedelta(hours=1),
    "day": timedelta(days=1),
}
# A page of usage never covers more than this many steps, so that no request scans a year of minutes.
STEPS_PER_REQUEST_MAX = 3_000


@dataclass(frozen=True, slots=True, kw_only=True)
class UsageTotals:
    """Bytes and requests per direction over `[start, end)`; `complete_until`: when the pipeline last finished a run."""

    start: datetime
    end: datetime
    produce_bytes: int
    consume_bytes: int
    produce_requests: int
    consume_requests: int
    complete_until: datetime | None


def plans_on_sale(*, held: Iterable[str] = ()) -> QuerySet[Plan]:
    """Also those `held` by instances, which keep them when they are sold no more."""
    return Plan.objects.filter(Q(on_sale=True) | Q(code__in=held))


def plan_of(instance: Instance) -> Plan | None:
    """On sale or not; None if there is none of that code."""
    return Plan.objects.filter(code=instance.plan).first()


def plan_for(
    code: str | None, *, bandwidth_mb_s: int | None, storage_gb: int | None, held: str | None = None
) -> Plan | None:
    """The plan called `code`, if it is on sale or `held`; without a code the smallest on sale that can hold what is
    asked for, or None.
    """
    plans = plans_on_sale(held=[held] if code and held else [])
    if code:
        return plans.filter(code=code).first()
    return plans.filter(bandwidth_mb_s_max__gte=bandwidth_mb_s or 0, storage_gb_max__gte=storage_gb or 0).first()


def price_at(plan: Plan, instant: datetime | None = None) -> Price | None:
    """The price in force at `instant` (default: at once)."""
    return (
        plan.prices.select_related("plan")
        .filter(effective_from__lte=instant or timezone.now())
        .order_by("-effective_from")
        .first()
    )


def quote_for(plan: Plan, *, bandwidth_mb_s: int, storage_gb: int) -> Quote | None:
    """What the plan with these quantities costs from now on; None where the plan has no price yet."""
    price = price_at(plan)
    if price is None:
        return None
    return quote(price.as_plan_price(), bandwidth_mb_s=bandwidth_mb_s, storage_gb=storage_gb)


def _rows(instance_id: str, start: datetime, end: datetime) -> QuerySet[UsageMinute]:
    return UsageMinute.objects.filter(instance_id=instance_id, minute__gte=start, minute__lt=end)


def usage_rows(
    instance_id: str, *, start: datetime, end: datetime, step: Step, group_by: Sequence[GroupBy] = ()
) -> list[dict[str, Any]]:
    """Usage of `[start, end)` per `step` and group, oldest first: `{start, direction, bytes, requests, <group>…}`."""
    rows = (
        _rows(instance_id, start, end)
        .annotate(start=Trunc("minute", step))
        .values("start", "direction", *group_by)
        .annotate(total_bytes=Sum("bytes"), total_requests=Sum("requests"))
        .order_by("start", "direction", *group_by)
    )
    return [
        {
            **{key: row[key] for key in ("start", "direction", *group_by)},
            "bytes": row["total_bytes"],
            "requests": row["total_requests"],
        }
        for row in rows
    ]


def usage_totals(instance_id: str, *, start: datetime, end: datetime) -> UsageTotals:
    sums = {
        row["direction"]: (row["total_bytes"], row["total_requests"])
        for row in _rows(instance_id, start, end)
        .values("direction")
        .annotate(total_bytes=Sum("bytes"), total_requests=Sum("requests"))
        .order_by()
    }
    produced, consumed = sums.get(Direction.PRODUCE, (0, 0)), sums.get(Direction.CONSUME, (0, 0))
    return UsageTotals(
        start=start,
        end=end,
        produce_bytes=produced[0],
        consume_bytes=consumed[0],
        produce_requests=produced[1],
        consume_requests=consumed[1],
        complete_until=UsageOffset.objects.aggregate(at=Max("updated_at"))["at"],
    )


def heaviest(instance_id: str, *, start: datetime, end: datetime, by: GroupBy, limit: int) -> list[dict[str, Any]]:
    """The `limit` topics, users or client ids with the most bytes in `[start, end)`."""
    return list(
        _rows(instance_id, start, end)
        .values(by, "direction")
        .annotate(name=F(by), total_bytes=Sum("bytes"), total_requests=Sum("requests"))
        .order_by("-total_bytes", "name")[:limit]
    )


def plan_terms(
    code: str | None, *, bandwidth_mb_s: int | None = None, storage_gb: int | None = None, held: str | None = None
) -> PlanTerms | None:
    """`instances.ports.PlanCatalogue`: the terms of `plan_for`."""
    plan = plan_for(code, bandwidth_mb_s=bandwidth_mb_s, storage_gb=storage_gb, held=held)
    if plan is None:
        return None
    return PlanTerms(
        code=plan.code,
        name=plan.name,
        bandwidth_mb_s=plan.bandwidth_mb_s,
        storage_gb=plan.storage_gb,
        bandwidth_mb_s_max=plan.bandwidth_mb_s_max,
        storage_gb_max=plan.storage_gb_max,
        partitions_max=plan.partitions_max,
    )


def usage_sources() -> list[UsageSource]:
    """Every cluster that has brokers, as the pipeline reads it: internal addresses and the cluster's own identity."""
    sources = []
    for cluster in Cluster.objects.prefetch_related("brokers__host"):
        addresses = [f"{host}:{port}" for host, port in (broker.internal_address for broker in cluster.brokers.all())]
        if addresses:
            sources.append(
                UsageSource(
                    cluster_id=cluster.pk,
                    bootstrap=",".join(addresses),
                    username=CLUSTER_USER,
                    password=cluster.read_control_secret(),
                )
            )
    return sources
