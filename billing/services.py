"""Writes: default plans and prices of a new installation, and resets of usage offsets."""

from __future__ import annotations

from datetime import UTC, datetime
from decimal import Decimal

from django.db import transaction

from billing.models import Plan, Price, UsageOffset
from brokers.contract.usage import USAGE_TOPIC

# (code, name, MB/s, GB, max. MB/s, max. GB, partitions, base/h, per MB/s and h, per GB and h), smallest plan first.
DEFAULT_PLANS = (
    ("brook", "Brook", 5, 20, 20, 200, 50, "0.0600", "0.0090", "0.000200"),
    ("stream", "Stream", 20, 100, 60, 1_000, 200, "0.2100", "0.0080", "0.000180"),
    ("river", "River", 60, 500, 200, 5_000, 600, "0.5600", "0.0070", "0.000160"),
    ("delta", "Delta", 200, 2_000, 3_000, 30_000, 3_000, "1.6500", "0.0060", "0.000140"),
)
FIRST_PRICE_DATE = datetime(2026, 1, 1, tzinfo=UTC)


@transaction.atomic
def ensure_default_plans() -> list[Plan]:
    """Creates missing default plans; an existing plan or price is not changed."""
    plans = []
    for position, (code, name, mb_s, gb, mb_s_max, gb_max, partitions, *prices) in enumerate(DEFAULT_PLANS):
        plan, created = Plan.objects.get_or_create(
            code=code,
            defaults={
                "name": name,
                "bandwidth_mb_s": mb_s,
                "storage_gb": gb,
                "bandwidth_mb_s_max": mb_s_max,
                "storage_gb_max": gb_max,
                "partitions_max": partitions,
                "position": position,
            },
        )
        if created:
            base, per_mb_s, per_gb = (Decimal(price) for price in prices)
            Price.objects.create(
                plan=plan,
                effective_from=FIRST_PRICE_DATE,
                base_per_hour=base,
                per_mb_s_hour=per_mb_s,
                per_gb_hour=per_gb,
            )
        plans.append(plan)
    return plans


def reset_usage_offset(cluster_id: str, partition: int) -> None:
    """Forgets the offset of a partition of `__usage` that is about to be recreated, to read it from its start."""
    UsageOffset.objects.filter(cluster_id=cluster_id, topic=USAGE_TOPIC, partition=partition).delete()
