"""Console pages of billing; those about one instance stand under its address."""

from __future__ import annotations

from django.urls import path

from billing.views import buying, usage

urlpatterns = [
    path("instances/new/", buying.create_page, name="page-instance-create"),
    path("price/", buying.price_part, name="page-price"),
    path("usage/", usage.account_usage_page, name="page-account-usage"),
    path("instances/<str:instance_id>/resize/", buying.resize_page, name="page-instance-resize"),
    path("instances/<str:instance_id>/cost/", buying.cost_part, name="page-cost-part"),
    path("instances/<str:instance_id>/usage/", usage.usage_page, name="page-usage"),
    path("instances/<str:instance_id>/history.json", usage.history, name="page-traffic-history"),
]
