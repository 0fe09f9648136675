"""Routes under /api/v1/ of this app."""

from __future__ import annotations

from django.urls import path

from brokers.api import views

urlpatterns = [
    path("operator/clusters", views.ClusterCollection.as_view()),
    path("operator/hosts", views.HostCollection.as_view()),
    path("operator/brokers", views.BrokerCollection.as_view()),
    path("operator/brokers/<str:broker_id>", views.BrokerResource.as_view()),
    path("operator/brokers/<str:broker_id>/restart", views.BrokerRestart.as_view()),
    path("operator/placements", views.PlacementCollection.as_view()),
]
