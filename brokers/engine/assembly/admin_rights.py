"""Access to the admin port: public health, metrics for the cluster's processes, the rest for the control plane."""

from __future__ import annotations

from typing import Final

from brokers.contract.process_identity import ProcessRole
from brokers.engine.telemetry.admin_http import Reply, Request, is_authorized

HEALTH: Final = frozenset({"/healthz", "/readyz"})
METRICS: Final = "/metrics"


def refusal(request: Request, *, cluster_id: str, secret: str | None) -> Reply | None:
    """Returns the error reply for a request that its peer may not make, else None.

    With `secret`, peers without a certificate may read metrics, and everything else if they send the secret; with None
    they may read health only.
    """
    if request.path in HEALTH:
        return None
    process = request.process
    if process is not None:
        is_reader = request.path == METRICS and process.is_of(cluster_id)
        if process.role is ProcessRole.CONTROL or is_reader:
            return None
        return Reply.json({"error": f"a certificate of the role {process.role} does not open this"}, 403)
    if secret is None:
        return Reply.json({"error": "speak TLS, with a certificate of this installation"}, 403)
    if not request.path.startswith("/v1/") or is_authorized(request, secret):
        return None
    return Reply.json({"error": "the control secret is needed"}, 401)
