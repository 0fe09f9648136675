"""Routes of billing below /api/v1/."""

from django.urls import path

from billing.api import views

urlpatterns = [
    path("plans", views.PlanCollection.as_view()),
    path("prices:quote", views.PriceQuote.as_view()),
    path("instances/<str:instance_id>/usage", views.InstanceUsage.as_view()),
]
