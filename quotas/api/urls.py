"""Routes of this app below /api/v1/."""

from __future__ import annotations

from django.urls import path

from quotas.api import views

urlpatterns = [
    path("instances/<str:instance_id>/quotas", views.Quotas.as_view()),
    path("instances/<str:instance_id>/quotas/effective", views.EffectiveQuota.as_view()),
]
