"""Routes of the web process. Each app provides REST routes (`api/urls.py`) and console pages (`urls.py`)."""

from __future__ import annotations

from django.contrib import admin
from django.urls import URLPattern, URLResolver, include, path, re_path
from django.views.generic import RedirectView

from config import health
from tenants.api.schema_view import DocsView, SchemaView
from tenants.operator_login import operator_login
from tenants.views import operator_password

# Upper apps first: a more specific path of an upper app precedes a catch-all of a lower one.
API = (
    "archives.api.urls",
    "billing.api.urls",
    "notifications.api.urls",
    "brokers.api.urls",
    "instances.api.urls",
    "quotas.api.urls",
    "tenants.api.urls",
)
PAGES = ("archives.urls", "billing.urls", "notifications.urls", "instances.urls", "tenants.urls")

urlpatterns: list[URLPattern | URLResolver] = [
    path("healthz", health.healthz, name="healthz"),
    path("readyz", health.readyz, name="readyz"),
    path("metrics", health.metrics, name="metrics"),
    path("operator/password_change/", operator_password.password_change),
    path("operator/login/", operator_login),
    # Pages that stood below another app; links to them are in mails and bookmarks.
    re_path(
        r"^operator/billing/(?P<page>alertrule|alertfiring)/(?P<rest>.*)$",
        RedirectView.as_view(url="/operator/notifications/%(page)s/%(rest)s", query_string=True),
    ),
    path("operator/", admin.site.urls),
    path("i18n/", include("django.conf.urls.i18n")),
    path("api/schema/", SchemaView.as_view(), name="schema"),
    path("api/docs/", DocsView.as_view(), name="api-docs"),
    *[path("api/v1/", include(module)) for module in API],
    *[path("", include(module)) for module in PAGES],
    path("accounts/", include("allauth.account.urls")),
    path("accounts/2fa/", include("allauth.mfa.urls")),
]

handler404 = "tenants.views.base.missing_page"
