"""Reads: plans and their prices, quotes, coupons, and how far the usage of clusters has been read."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import datetime, timedelta

from django.db.models import Count, Exists, Max, Min, OuterRef, Prefetch, Q, QuerySet, Subquery
from django.db.models.functions import Coalesce
from django.utils import timezone

from billing.models import NEVER, Coupon, Discount, Plan, Price, UsageOffset
from billing.pipeline.cluster import UsageSource
from billing.rating.quotes import Quote, quote
from brokers.choices import ProcessState
from brokers.contract.process import CLUSTER_USER
from brokers.contract.usage import USAGE_INTERVAL_MS, USAGE_TOPIC
from brokers.infra import internal_tls
from brokers.models import Cluster, Placement
from instances.interfaces import PlanTerms
from instances.lifecycle.phases import COUNTED
from instances.models import Instance


def plans_on_sale(*, current_plans: Iterable[str] = (), currency: str | None = None) -> QuerySet[Plan]:
    """Returns plans on sale with a price in force (in the currency, if given), and `current_plans`, which instances
    have.

    An instance keeps its plan after the plan was taken off sale.
    """
    priced = Price.objects.filter(plan=OuterRef("pk"), effective_from__lte=timezone.now())
    if currency is not None:
        priced = priced.filter(currency=currency)
    return Plan.objects.filter(Q(Exists(priced), on_sale=True) | Q(code__in=current_plans))


def plan_of(instance: Instance) -> Plan | None:
    """Returns the instance's plan, on sale or not; None if no plan has its code."""
    return Plan.objects.filter(code=instance.plan).first()


def plan_for(
    code: str | None,
    *,
    bandwidth_mb_s: int | None,
    storage_gb: int | None,
    current_plan: str | None = None,
    currency: str | None = None,
) -> Plan | None:
    """Returns the plan `code` if it is on sale or the `current_plan`; without a code, the smallest plan on sale that
    fits.
    """
    plans = plans_on_sale(current_plans=[current_plan] if code and current_plan else [], currency=currency)
    if code:
        return plans.filter(code=code).first()
    return plans.filter(bandwidth_mb_s_max__gte=bandwidth_mb_s or 0, storage_gb_max__gte=storage_gb or 0).first()


def _in_force(currency: str, instant: datetime | None = None) -> QuerySet[Price]:
    """Returns the price in force of each plan that has one in this currency."""
    started = Price.objects.filter(currency=currency, effective_from__lte=instant or timezone.now())
    return started.select_related("plan").order_by("plan_id", "-effective_from").distinct("plan_id")


def price_at(plan: Plan, currency: str, instant: datetime | None = None) -> Price | None:
    """Returns the price of a plan in a currency that is in force at `instant`, by default now."""
    return _in_force(currency, instant).filter(plan=plan).first()


def has_price(plan: Plan, instant: datetime) -> bool:
    """True if the plan has a price in force in any currency."""
    return Price.objects.filter(plan=plan, effective_from__lte=instant).exists()


def with_prices(plans: QuerySet[Plan], currency: str) -> QuerySet[Plan]:
    """Prefetches the prices in force, so that `price_of` needs no query."""
    return plans.prefetch_related(Prefetch("prices", queryset=_in_force(currency), to_attr="in_force"))


def price_of(plan: Plan) -> Price | None:
    """Returns the price in force of a plan that was loaded by `with_prices`."""
    return next(iter(plan.in_force), None)  # type: ignore[attr-defined]


def quote_for(plan: Plan, *, currency: str, bandwidth_mb_s: int, storage_gb: int) -> Quote | None:
    """Returns the current cost of the plan with these quantities; None if it has no price in this currency yet."""
    price = price_at(plan, currency)
    if price is None:
        return None
    return quote(price.size_price_list(), bandwidth_mb_s=bandwidth_mb_s, storage_gb=storage_gb)


def quotes_of(instances: Iterable[Instance], currency: str) -> dict[str, Quote]:
    """Returns the cost of each instance at its size, by id.

    Instances that cost nothing (failed, deleted) and those whose plan has no price are omitted.
    """
    result = [instance for instance in instances if instance.current_phase in COUNTED]
    plans = with_prices(Plan.objects.filter(code__in={instance.plan for instance in result}), currency)
    prices = {plan.pk: price.size_price_list() for plan in plans if (price := price_of(plan))}
    return {
        instance.pk: quote(
            prices[instance.plan], bandwidth_mb_s=instance.bandwidth_mb_s, storage_gb=instance.storage_gb
        )
        for instance in result
        if instance.plan in prices
    }


def complete_until(instance_id: str) -> datetime | None:
    """Returns the instant up to which the usage tables have the reports of all brokers of the instance's cluster; None
    if it is unknown.

    A broker reports its counters every `USAGE_INTERVAL_MS`, so the tables are complete up to one interval
    before the last read.
    """
    return _usage_read_until(instance_id, Min("updated_at"))


def applied_until(instance_id: str) -> datetime | None:
    """Returns the instant up to which the usage tables have the reports of the partition of the usage topic that was
    read last; other partitions may be behind.
    """
    return _usage_read_until(instance_id, Max("updated_at"))


def _usage_read_until(instance_id: str, aggregate: Min | Max) -> datetime | None:
    cluster = Placement.objects.filter(instance=instance_id).values("cluster_id")
    at: datetime | None = UsageOffset.objects.filter(cluster_id__in=cluster).aggregate(at=aggregate)["at"]
    return None if at is None or at <= NEVER else at - timedelta(milliseconds=USAGE_INTERVAL_MS)


def plan_terms(
    code: str | None,
    *,
    bandwidth_mb_s: int | None = None,
    storage_gb: int | None = None,
    current_plan: str | None = None,
    currency: str | None = None,
) -> PlanTerms | None:
    """Implements `instances.interfaces.PlanCatalogue`: returns the terms of `plan_for`."""
    plan = plan_for(
        code, bandwidth_mb_s=bandwidth_mb_s, storage_gb=storage_gb, current_plan=current_plan, currency=currency
    )
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


def with_redemptions(coupons: QuerySet[Coupon]) -> QuerySet[Coupon]:
    """Annotates coupons with `redemptions` by a subquery, so that it is counted only for the rows of the page."""
    of_coupon = Discount.objects.filter(coupon=OuterRef("pk")).order_by().values("coupon")
    count = Subquery(of_coupon.annotate(count=Count("pk")).values("count"))
    return coupons.annotate(redemptions=Coalesce(count, 0))


def next_usage_offsets(cluster_id: str) -> dict[int, int]:
    """Returns the next offset to read of each partition of a cluster's usage topic."""
    rows = UsageOffset.objects.filter(cluster_id=cluster_id, topic=USAGE_TOPIC)
    return dict(rows.values_list("partition", "next_offset"))


def usage_sources() -> list[UsageSource]:
    """Returns the internal addresses and credentials by which the pipeline reads each cluster that has brokers."""
    sources = []
    for cluster in Cluster.objects.prefetch_related("brokers__host"):
        brokers = [broker for broker in cluster.brokers.all() if broker.removed_at is None]
        # During an upgrade to TLS the shared secret is used, because all running brokers accept it.
        running = [broker for broker in brokers if broker.process_state == ProcessState.RUNNING]
        files = internal_tls.own_files() if all(broker.certified_as for broker in running) else None
        # The secret is sent only to brokers that have been started: another program may listen on the port of a broker
        # that has not.
        readable = [
            broker for broker in brokers if files or broker.process_has_tls is not None or not broker.certified_as
        ]
        addresses = [f"{host}:{port}" for host, port in (broker.internal_address for broker in readable)]
        if addresses:
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
