"""Routes of this app below /api/v1/."""

from __future__ import annotations

from django.urls import path

from tenants.api import views

urlpatterns = [
    path("me", views.Me.as_view()),
    path("tenants", views.TenantCollection.as_view()),
    path("tenants/<str:tenant_id>", views.TenantResource.as_view()),
    path("members", views.MemberCollection.as_view()),
    path("members/<str:member_id>", views.MemberResource.as_view()),
    path("invitations", views.InvitationCollection.as_view()),
    path("invitations:accept", views.InvitationAcceptance.as_view()),
    path("invitations/<str:invitation_id>", views.InvitationResource.as_view()),
    path("tokens", views.TokenCollection.as_view()),
    path("tokens/<str:token_id>", views.TokenResource.as_view()),
    path("sso", views.SsoResource.as_view()),
    path("sso/domains:prove", views.SsoDomainProof.as_view()),
    path("scopes", views.ScopeCollection.as_view()),
    path("audit", views.AuditCollection.as_view()),
    path("limits", views.LimitCollection.as_view()),
]
