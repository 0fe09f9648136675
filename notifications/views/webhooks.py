"""Console pages of webhooks: endpoints, their secrets (shown once) and deliveries."""

from __future__ import annotations

from collections.abc import Callable
from functools import wraps
from typing import Any

from django.contrib import messages
from django.db import transaction
from django.http import HttpRequest, HttpResponse
from django.shortcuts import redirect
from django.urls import reverse
from django.utils.translation import gettext as _
from django.views.decorators.http import require_http_methods, require_POST

from notifications import access as notifications_access
from notifications.forms import WebhookForm
from notifications.models import WebhookEndpoint
from notifications.webhooks import services
from tenants import access
from tenants.api.pages import page_of_rows
from tenants.choices import Scope
from tenants.errors import DomainError
from tenants.limits import PAGE_SIZE_DEFAULT
from tenants.views.base import Crumb, add_errors, console_page, render_page, wording

WebhookAction = Callable[[HttpRequest, WebhookEndpoint], HttpResponse | None]


@console_page(Scope.BILLING_READ)
@require_http_methods(["GET", "POST"])
def webhooks_page(request: HttpRequest) -> HttpResponse:
    """Lists webhooks with the form for a new one; a POST creates it and shows its secret on the webhook's own page."""
    acting = request.actor  # type: ignore[attr-defined]
    form = WebhookForm(request.POST or None)
    if form.is_bound and form.is_valid():
        try:
            webhook, secret = services.create_endpoint(acting=acting, url=form.cleaned_data["url"])
            return _own_page(request, webhook, secret=secret)
        except DomainError as error:
            add_errors(form, error)
    context = {
        "rows": notifications_access.webhooks_of(access.tenant_of(acting)).order_by("created_at", "id"),
        "form": form,
    }
    status = 422 if form.is_bound else 200
    return render_page(
        request,
        "notifications/webhooks.html",
        context,
        section="webhooks",
        crumbs=[(_("Webhooks"), None)],
        status=status,
    )


@console_page(Scope.BILLING_READ)
@require_http_methods(["GET"])
def webhook_page(request: HttpRequest, webhook_id: str) -> HttpResponse:
    """Shows one webhook and its deliveries, latest first, 50 on a page."""
    return _own_page(request, notifications_access.webhook(request.actor, webhook_id))  # type: ignore[attr-defined]


def _webhook_action(view: WebhookAction) -> Callable[..., HttpResponse]:
    """Decorates an action of the webhook's page: locks the webhook, and shows a refusal on the page."""

    @console_page(Scope.BILLING_WRITE)
    @require_POST
    @wraps(view)
    def guarded(request: HttpRequest, webhook_id: str, **kwargs: Any) -> HttpResponse:
        acting = request.actor  # type: ignore[attr-defined]
        try:
            with transaction.atomic():
                webhook = notifications_access.webhook(acting, webhook_id, lock=True)
                response = view(request, webhook, **kwargs)
        except DomainError as error:
            if error.http_status == 404:
                raise
            messages.error(request, wording(error))
            response = None
        return response or redirect("page-webhook", webhook_id)

    return guarded


@_webhook_action
def switch_webhook(request: HttpRequest, webhook: WebhookEndpoint) -> None:
    """Switches the webhook on or off."""
    is_on = request.POST.get("to") == "on"
    acting = request.actor  # type: ignore[attr-defined]
    services.change_endpoint(acting=acting, endpoint=webhook, changes={"is_enabled": is_on})
    messages.success(request, _("The webhook is turned on.") if is_on else _("The webhook is turned off."))


@_webhook_action
def rotate_webhook(request: HttpRequest, webhook: WebhookEndpoint) -> HttpResponse | None:
    """Creates a new secret and shows it once.

    Reloading that page must not rotate again, because the first secret would be lost.
    """
    if request.POST.get("version") != str(webhook.version):
        messages.error(request, _("The webhook was changed meanwhile. Nothing was done."))
        return None
    secret = services.rotate_secret(acting=request.actor, endpoint=webhook)  # type: ignore[attr-defined]
    return _own_page(request, webhook, secret=secret)


@_webhook_action
def send_test_delivery(request: HttpRequest, webhook: WebhookEndpoint) -> None:
    services.send_test(acting=request.actor, endpoint=webhook)  # type: ignore[attr-defined]
    messages.success(request, _("A test is on its way. It is delivered within seconds."))


@_webhook_action
def resend_delivery(request: HttpRequest, webhook: WebhookEndpoint, *, delivery_id: str) -> None:
    """Sends a delivery again under the same id."""
    acting = request.actor  # type: ignore[attr-defined]
    services.resend(acting=acting, delivery=notifications_access.delivery(acting, webhook, delivery_id))
    messages.success(request, _("The delivery is sent again, under the same id."))


@console_page(Scope.BILLING_WRITE)
@require_http_methods(["GET", "POST"])
def delete_webhook(request: HttpRequest, webhook_id: str) -> HttpResponse:
    """Deletes a webhook after its id was typed, because its secret and deliveries cannot be restored."""
    acting = request.actor  # type: ignore[attr-defined]
    webhook = notifications_access.webhook(acting, webhook_id)
    if request.method == "POST" and request.POST.get("typed") == webhook.pk:
        try:
            with transaction.atomic():
                services.delete_endpoint(
                    acting=acting, endpoint=notifications_access.webhook(acting, webhook_id, lock=True)
                )  # fmt: skip
        except DomainError as error:
            if error.http_status == 404:
                raise
            messages.error(request, wording(error))
            return redirect("page-webhook", webhook_id)
        messages.success(request, _("The webhook is deleted."))
        return redirect("page-webhooks")
    counts = notifications_access.delivery_counts(webhook)
    context = {"webhook": webhook, "pending": counts.pending, "finished": counts.finished}
    return render_page(
        request,
        "notifications/webhook_delete.html",
        context,
        section="webhooks",
        crumbs=_crumbs(webhook, (_("Delete"), None)),
    )


def _own_page(request: HttpRequest, webhook: WebhookEndpoint, *, secret: str | None = None) -> HttpResponse:
    """Renders the webhook's page; a page with a secret must not be cached."""
    acting = request.actor  # type: ignore[attr-defined]
    rows, next_token = page_of_rows(
        notifications_access.deliveries_of(acting, webhook), order=("-created_at", "id"), page_size=PAGE_SIZE_DEFAULT,
        page_token=request.GET.get("page_token") or None, binding=f"deliveries {webhook.pk}",
    )  # fmt: skip
    context = {
        "webhook": webhook, "secret": secret, "rows": rows, "next_token": next_token,
        "is_first": "page_token" not in request.GET,
    }  # fmt: skip
    response = render_page(request, "notifications/webhook.html", context, section="webhooks", crumbs=_crumbs(webhook))
    if secret is not None:
        response.headers["Cache-Control"] = "no-store"
    return response


def _crumbs(webhook: WebhookEndpoint, *more: Crumb) -> list[Crumb]:
    own_url = reverse("page-webhook", args=[webhook.pk]) if more else None
    return [(_("Webhooks"), reverse("page-webhooks")), (webhook.pk, own_url), *more]
