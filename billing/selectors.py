"""Reads: plans on sale, quotes, and usage as the minute rows tell it."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any, Literal

from django.db.models import F, Max, Min, Prefetch, Q, QuerySet, Sum
from django.db.models.functions import Trunc
from django.utils import timezone

from billing.models import NEVER, Direction, Plan, Price, UsageMinute, UsageOffset
from billing.pipeline.cluster import Cluster as UsageSource
from billing.rating.quotes import Quote, quote
from brokers.choices import ProcessState
from brokers.contract.process import CLUSTER_USER
from brokers.contract.usage import USAGE_INTERVAL_MS
from brokers.infra import internal_tls
from brokers.models import Cluster, Placement
from instances.interfaces import PlanTerms
from instances.lifecycle.phases import COUNTED
from instances.models import Instance

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
    """Bytes and requests per direction over `[start, end)`."""

    start: datetime
    end: datetime
    produce_bytes: int
    consume_bytes: int
    produce_requests: int
    consume_requests: int


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


def _in_force(currency: str, instant: datetime | None = None) -> QuerySet[Price]:
    """One price of each plan, if it has one in this currency that has begun."""
    begun = Price.objects.filter(currency=currency, effective_from__lte=instant or timezone.now())
    return begun.select_related("plan").order_by("plan_id", "-effective_from").distinct("plan_id")


def price_at(plan: Plan, currency: str, instant: datetime | None = None) -> Price | None:
    """The price in force at `instant` (default: at once) for who pays in `currency`."""
    return _in_force(currency, instant).filter(plan=plan).first()


def with_prices(plans: QuerySet[Plan], currency: str) -> QuerySet[Plan]:
    """The same plans; `price_of` then asks nobody."""
    return plans.prefetch_related(Prefetch("prices", queryset=_in_force(currency), to_attr="in_force"))


def price_of(plan: Plan) -> Price | None:
    """The price in force of a plan that came `with_prices`."""
    return next(iter(plan.in_force), None)  # type: ignore[attr-defined]


def quote_for(plan: Plan, *, currency: str, bandwidth_mb_s: int, storage_gb: int) -> Quote | None:
    """What the plan with these quantities costs from now on; None where it has no price in this currency yet."""
    price = price_at(plan, currency)
    if price is None:
        return None
    return quote(price.of_sizes(), bandwidth_mb_s=bandwidth_mb_s, storage_gb=storage_gb)


def quotes_of(instances: Iterable[Instance], currency: str) -> dict[str, Quote]:
    """What each instance costs at its size, by id. Left out are those that cost nothing (failed, deleted), and those
    whose plan has no price.
    """
    result = [instance for instance in instances if instance.current_phase in COUNTED]
    plans = with_prices(Plan.objects.filter(code__in={instance.plan for instance in result}), currency)
    prices = {plan.pk: price.of_sizes() for plan in plans if (price := price_of(plan))}
    return {
        instance.pk: quote(
            prices[instance.plan], bandwidth_mb_s=instance.bandwidth_mb_s, storage_gb=instance.storage_gb
        )
        for instance in result
        if instance.plan in prices
    }


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
    return usage_totals_of([instance_id], start=start, end=end)[instance_id]


def usage_totals_of(instance_ids: Iterable[str], *, start: datetime, end: datetime) -> dict[str, UsageTotals]:
    """The totals of each of these, also of those that used nothing."""
    asked = list(instance_ids)
    sums = {
        (row["instance_id"], row["direction"]): (row["total_bytes"], row["total_requests"])
        for row in UsageMinute.objects.filter(instance_id__in=asked, minute__gte=start, minute__lt=end)
        .values("instance_id", "direction")
        .annotate(total_bytes=Sum("bytes"), total_requests=Sum("requests"))
        .order_by()
    }
    totals = {}
    for instance_id in asked:
        produced = sums.get((instance_id, Direction.PRODUCE), (0, 0))
        consumed = sums.get((instance_id, Direction.CONSUME), (0, 0))
        totals[instance_id] = UsageTotals(
            start=start,
            end=end,
            produce_bytes=produced[0],
            consume_bytes=consumed[0],
            produce_requests=produced[1],
            consume_requests=consumed[1],
        )
    return totals


def complete_until(instance_id: str) -> datetime | None:
    """What was used before this is in the rows, of every broker of the instance's cluster; None where nobody knows.

    A broker tells what it counted every `USAGE_INTERVAL_MS`, so what was looked at holds what was used until then.
    """
    return _looked_at(instance_id, Min("updated_at"))


def applied_until(instance_id: str) -> datetime | None:
    """The same of the broker that is known best: rows of others (one that is down) may still be missing before it."""
    return _looked_at(instance_id, Max("updated_at"))


def _looked_at(instance_id: str, of: Min | Max) -> datetime | None:
    home = Placement.objects.filter(instance=instance_id).values("cluster_id")
    at: datetime | None = UsageOffset.objects.filter(cluster_id__in=home).aggregate(at=of)["at"]
    return None if at is None or at <= NEVER else at - timedelta(milliseconds=USAGE_INTERVAL_MS)


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
    """`instances.interfaces.PlanCatalogue`: the terms of `plan_for`."""
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
        brokers = [broker for broker in cluster.brokers.all() if broker.removed_at is None]
        addresses = [f"{host}:{port}" for host, port in (broker.internal_address for broker in brokers)]
        if addresses:
            # In the midst of an upgrade, all brokers let in who knows the secret.
            running = [broker for broker in brokers if broker.process_state == ProcessState.RUNNING]
            files = internal_tls.own_files() if all(broker.process_has_tls for broker in running) else None
            sources.append(
                UsageSource(
                    cluster_id=cluster.pk,
                    bootstrap=",".join(addresses),
                    username=CLUSTER_USER,
                    password=cluster.read_control_secret(),
                    certificate_file=str(files.certificate) if files else "",
                    ca_file=str(files.authority) if files else "",
                )
            )
    return sources
