"""Every route of the web process. Each app brings its REST routes (`api/urls.py`) and its console pages (`urls.py`)."""

from __future__ import annotations

from importlib.util import find_spec

from django.contrib import admin
from django.urls import URLPattern, URLResolver, include, path
from drf_spectacular.views import SpectacularAPIView, SpectacularSwaggerView

from config import health

Route = URLPattern | URLResolver


def _exists(module: str) -> bool:
    try:
        return find_spec(module) is not None
    except ModuleNotFoundError:
        return False


def _routes(prefix: str, *modules: str) -> list[Route]:
    return [path(prefix, include(module)) for module in modules if _exists(module)]


urlpatterns: list[Route] = [
    path("healthz", health.healthz, name="healthz"),
    path("readyz", health.readyz, name="readyz"),
    path("metrics", health.metrics, name="metrics"),
    path("operator/", admin.site.urls),
    path("i18n/", include("django.conf.urls.i18n")),
    path("api/schema/", SpectacularAPIView.as_view(), name="schema"),
    path("api/docs/", SpectacularSwaggerView.as_view(url_name="schema"), name="api-docs"),
    *_routes(
        "api/v1/", "tenants.api.urls", "quotas.api.urls", "instances.api.urls", "brokers.api.urls", "billing.api.urls"
    ),
    *_routes("", "billing.urls", "brokers.urls", "quotas.urls", "instances.urls", "tenants.urls"),
    path("accounts/", include("allauth.account.urls")),
]
