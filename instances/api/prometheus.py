"""REST API of an instance's metrics for a Prometheus server."""

from __future__ import annotations

import time
from typing import Any

from django.http import HttpResponse
from rest_framework.renderers import BaseRenderer, JSONRenderer
from rest_framework.request import Request

from instances import access, selectors
from instances.groups import lag_history
from instances.limits import METRIC_RATE_SPAN_S
from instances.metrics import prometheus
from tenants import access as permissions
from tenants.api.base import ApiView, endpoint
from tenants.choices import Scope
from tenants.errors import Unavailable

MEDIA_TYPE = "text/plain"
MS_PER_S = 1_000
# The full seconds of a rate, the current second, and one second of margin.
RATE_MS = (METRIC_RATE_SPAN_S + 2) * MS_PER_S


class TextRenderer(BaseRenderer):
    """Lets content negotiation succeed for a caller that accepts only text, which the view renders itself."""

    media_type = MEDIA_TYPE
    format = "text"

    def render(self, data: Any, accepted_media_type: str | None = None, renderer_context: Any = None) -> bytes:
        return str(data).encode()


class PrometheusMetrics(ApiView):
    tag = "Watching"
    renderer_classes = (JSONRenderer, TextRenderer)

    @endpoint("scrape_metrics", Scope.USAGE_READ, text_media_type=MEDIA_TYPE, errors=(409, 503))
    def get(self, request: Request, instance_id: str) -> HttpResponse:
        """Scrape metrics in Prometheus' text format.

        Traffic, storage and throttling of the instance, size of its topics, and lag of its groups (with the scope
        `groups:read`; without it lags are left out). Lags are sampled every few seconds, so that a scrape queries no
        broker for them.
        """
        instance = access.instance(self.actor, instance_id)
        access.require_reachable(instance)
        traffic = selectors.traffic(instance, since_ms=-RATE_MS)
        if not traffic.now_ms:
            raise Unavailable("No broker of this instance answers.", retry_after_s=1)
        now_ms = time.time_ns() // 1_000_000
        may_see_groups = permissions.permits(self.actor, Scope.GROUPS_READ)
        lags_by_group = lag_history.latest_lags(instance.pk, now_ms) if may_see_groups else {}
        oldest_ms = min((at_ms for at_ms, _ in lags_by_group.values()), default=now_ms)
        scrape = prometheus.ScrapeValues(
            bandwidth_mb_s=instance.bandwidth_mb_s,
            storage_gb=instance.storage_gb,
            traffic=traffic,
            throttles=selectors.throttles(instance),
            sizes=selectors.topic_sizes(instance),
            lags={
                (group, topic): lag for group, (_, by_topic) in lags_by_group.items() for topic, lag in by_topic.items()
            },
            lags_age_s=max(0, now_ms - oldest_ms) / MS_PER_S,
        )
        return HttpResponse(prometheus.render(scrape), content_type=prometheus.CONTENT_TYPE)
