"""Schedule of Celery beat. All tasks are idempotent.

An entry expires when the next one is due, so that a pause of the worker does not accumulate old entries.
"""

from __future__ import annotations

from typing import Any

from brokers.limits import SAMPLE_TRAFFIC_EVERY_S
from instances.copying.limits import COPY_EVERY_S
from instances.limits import LAG_SAMPLE_EVERY_S, STORAGE_SAMPLE_EVERY_S

OBSERVE_EVERY_S = 5
SAMPLE_LAGS_EVERY_S = LAG_SAMPLE_EVERY_S
SWEEP_EVERY_S = 5
KEEP_DELAYS_EVERY_S = 30
KEEP_KEY_SETS_EVERY_S = 5
WATCH_EVERY_S = 2
WORK_EVERY_S = 1
TIDY_EVERY_S = 300
CERTIFICATES_EVERY_S = 3_600
REVOCATIONS_EVERY_S = 10
DELETED_TOPICS_EVERY_S = 30
USAGE_EVERY_S = 20
AUDIT_EVERY_S = 2
INVOICES_EVERY_S = 600
LAKE_EVERY_S = 3_600
DUN_EVERY_S = 3_600
IDLE_EVERY_S = 3_600
MARGINS_EVERY_S = 900
PARTITIONS_EVERY_S = 3_600
COUNTERS_EVERY_S = 21_600
BUDGETS_EVERY_S = 60
ALERTS_EVERY_S = 60
MAILS_EVERY_S = 10
WEBHOOKS_EVERY_S = 5
ARCHIVES_EVERY_S = 30


def every(seconds: int, task: str, *, queue: str = "penstock") -> dict[str, Any]:
    """Returns one entry of the schedule."""
    return {"task": task, "schedule": float(seconds), "options": {"queue": queue, "expires": seconds}}


BEAT_SCHEDULE: dict[str, dict[str, Any]] = {
    "observe brokers": every(OBSERVE_EVERY_S, "brokers.observe"),
    "keep delays": every(KEEP_DELAYS_EVERY_S, "brokers.keep_delays"),
    "keep key sets": every(KEEP_KEY_SETS_EVERY_S, "brokers.keep_key_sets"),
    "watch instances": every(WATCH_EVERY_S, "brokers.watch"),
    "sample traffic": every(SAMPLE_TRAFFIC_EVERY_S, "brokers.sample_traffic"),
    "sample lags of groups": every(SAMPLE_LAGS_EVERY_S, "brokers.sample_lags"),
    "sample what instances store": every(STORAGE_SAMPLE_EVERY_S, "brokers.sample_storage"),
    "sweep instances": every(SWEEP_EVERY_S, "brokers.sweep"),
    "move replicas": every(WORK_EVERY_S, "brokers.work"),
    "form and retire clusters": every(WORK_EVERY_S, "brokers.work_on_clusters"),
    "renew certificates": every(CERTIFICATES_EVERY_S, "brokers.renew_certificates"),
    "publish revoked certificates": every(REVOCATIONS_EVERY_S, "brokers.publish_revocations"),
    "watch certificates": every(TIDY_EVERY_S, "brokers.watch_certificates"),
    "copy topics": every(COPY_EVERY_S, "brokers.copy_topics"),
    "delete topics for good": every(DELETED_TOPICS_EVERY_S, "brokers.purge_deleted_topics"),
    "tidy clusters": every(TIDY_EVERY_S, "brokers.tidy"),
    "read what clients administer": every(AUDIT_EVERY_S, "brokers.read_audit"),
    "forget old rows of clients": every(TIDY_EVERY_S, "tenants.forget_old_client_rows"),
    "forget idempotency records": every(TIDY_EVERY_S, "tenants.forget_idempotency_records"),
    "forget ended sessions": every(TIDY_EVERY_S, "tenants.forget_ended_sessions"),
    "check domains again": every(TIDY_EVERY_S, "tenants.recheck_domains"),
    "issue invoices": every(INVOICES_EVERY_S, "billing.issue_invoices"),
    "dun who has not paid": every(DUN_EVERY_S, "billing.dun"),
    "stop what nobody uses": every(IDLE_EVERY_S, "billing.stop_idle"),
    "keep margins of clusters": every(MARGINS_EVERY_S, "billing.keep_margins"),
    "make and drop partitions of usage": every(PARTITIONS_EVERY_S, "billing.keep_partitions"),
    "forget counters of brokers that ended": every(COUNTERS_EVERY_S, "billing.forget_counters"),
    "look after the lake": every(LAKE_EVERY_S, "billing.look_after_lake", queue="pipeline"),
    "watch budgets": every(BUDGETS_EVERY_S, "billing.watch_budgets"),
    "evaluate alert rules": every(ALERTS_EVERY_S, "billing.evaluate_alert_rules"),
    "send mails of budgets and alerts": every(MAILS_EVERY_S, "billing.send_mails"),
    "deliver webhooks": every(WEBHOOKS_EVERY_S, "billing.deliver_webhooks"),
    "archive topics": every(ARCHIVES_EVERY_S, "billing.run_archives", queue="pipeline"),
    "apply usage": every(USAGE_EVERY_S, "billing.run_usage_pipeline", queue="pipeline"),
}
