"""Routes under /api/v1/ of this app."""

from __future__ import annotations

from django.urls import path

from quotas.api import views

urlpatterns = [
    path("instances/<str:instance_id>/quotas", views.Quotas.as_view()),
    path("instances/<str:instance_id>/quotas/effective", views.EffectiveQuota.as_view()),
]
