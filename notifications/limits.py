"""Limits of alert rules and of their evaluation, and of mails about alerts and budgets."""

from __future__ import annotations

from datetime import timedelta
from typing import Final

from tenants.limits import Limit, register

ALERT_RULES_PER_TENANT_MAX: Final = 100
NAME_CHARS_MAX: Final = 64
GROUP_CHARS_MAX: Final = 255
# Minutes for which a figure must stay at or above the threshold before its rule fires: default and maximum.
FOR_MINUTES: Final = 5
FOR_MINUTES_MAX: Final = 1_440
# Minutes of which a rule takes the throttled share: default, minimum and maximum.
WINDOW_MINUTES: Final = 15
WINDOW_MINUTES_MIN: Final = 5
WINDOW_MINUTES_MAX: Final = 60
PERCENT_MAX: Final = 100
LAG_MAX: Final = 10**15

# A firing ends below this many tenths of the threshold.
RESOLVE_BELOW_TENTHS: Final = 9
# It ends when the figure has been below that for the rule's own duration, but at the latest after this time.
RESOLVE_AFTER_MAX: Final = timedelta(minutes=5)
# Minimum interval between two firings of one rule.
FIRES_EVERY: Final = timedelta(minutes=15)
# Samples further apart say nothing about the time between them.
GAP_MAX: Final = timedelta(minutes=3)

# Maximum number of rules of one evaluation, least recently evaluated first; after TURN_S no further batch is started.
RULES_PER_EVALUATION_MAX: Final = 100_000
RULES_PER_BATCH: Final = 250
EVALUATION_DURATION_MAX_S: Final = 40.0
# Maximum age of samples; an older figure is unknown.
STORAGE_KNOWN_FOR: Final = timedelta(minutes=6)
DELAYS_KNOWN_FOR: Final = timedelta(minutes=3)
CLUSTER_KNOWN_FOR: Final = timedelta(seconds=30)

FIRINGS_KEPT_FOR: Final = timedelta(days=90)
DELETE_BATCH_SIZE: Final = 5_000

# Mails of a tenant about alerts and about budgets, and both to one address, which may belong to several tenants.
ALERT_MAILS_PER_TENANT_AND_HOUR_MAX: Final = 12
BUDGET_MAILS_PER_TENANT_AND_HOUR_MAX: Final = 12
MAILS_PER_ADDRESS_AND_HOUR_MAX: Final = 30


def publish() -> None:
    """Registers the limits that tenants can reach for `/limits`; called once from `AppConfig.ready`."""
    register(
        Limit("alert_rules_per_tenant_max", ALERT_RULES_PER_TENANT_MAX, "rules", "Alert rules of one tenant."),
        Limit("alert_rule_minutes_max", FOR_MINUTES_MAX, "minutes", "How long a rule may wait before it fires."),
        Limit(
            "alert_window_minutes_max",
            WINDOW_MINUTES_MAX,
            "minutes",
            "The minutes of which a rule takes the throttled share.",
        ),
        Limit(
            "alert_mails_per_hour_max",
            ALERT_MAILS_PER_TENANT_AND_HOUR_MAX,
            "mails",
            "Mails about alerts to a tenant in an hour; the next one tells the rest.",
        ),
        Limit(
            "budget_mails_per_hour_max",
            BUDGET_MAILS_PER_TENANT_AND_HOUR_MAX,
            "mails",
            "Mails about budgets to a tenant in an hour; what is above that follows later.",
        ),
        Limit(
            "mails_per_address_and_hour_max",
            MAILS_PER_ADDRESS_AND_HOUR_MAX,
            "mails",
            "Mails about alerts and budgets to one address in an hour, of all its tenants.",
        ),
    )
