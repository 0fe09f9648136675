"""Pages of an instance's users: list with state and last use, passwords that are shown once, disabling and deletion."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

from django.contrib import messages
from django.http import HttpRequest, HttpResponse
from django.shortcuts import redirect
from django.urls import reverse
from django.utils import timezone
from django.utils.translation import gettext as _
from django.views.decorators.http import require_GET, require_http_methods, require_POST

from instances import selectors, services
from instances.acls import selectors as acl_selectors
from instances.acls.interfaces import AclFilter
from instances.lifecycle.phases import REACHABLE
from instances.models import Instance
from instances.templatetags.access import user_url
from instances.users import selectors as user_selectors
from instances.users.forms import ExpiryForm, UserForm
from instances.users.interfaces import NewSecret, UserDescription
from instances.users.limits import SECRETS_PER_USER_MAX, USER_NAME_BYTES_MAX
from instances.users.naming import principal_of
from instances.users.routes import sasl_route
from instances.users.selectors import user_names
from instances.views.common import instance_page, render_instance
from instances.views.connecting import ca_url
from instances.views.snippet_security import Login, client_security, properties
from instances.views.snippets import snippets
from quotas import selectors as quota_selectors
from tenants import access
from tenants.choices import Scope
from tenants.errors import DomainError
from tenants.forms import AuditFilterForm
from tenants.limits import PAGE_SIZE_DEFAULT
from tenants.views.asking import Question, ask_first
from tenants.views.base import Crumb, add_errors, wording


@instance_page(Scope.USERS_READ)
@require_http_methods(["GET", "POST"])
def users_page(request: HttpRequest, instance: Instance) -> HttpResponse:
    """Shows one page of users with last use and connections; a POST creates one and shows its password once."""
    acting = request.actor  # type: ignore[attr-defined]
    is_open = acl_selectors.allows_everyone(instance)
    form = UserForm(request.POST or None, is_open=is_open)
    new_password: dict[str, Any] = {}
    if form.is_valid():
        days = form.cleaned_data["days"]
        try:
            access.require(acting, Scope.USERS_WRITE)
            user, secret = services.create_user(
                acting=acting,
                instance=instance,
                name=form.cleaned_data["name"],
                superuser=form.is_superuser,
                rights=form.preset,
                expires_at=timezone.now() + timedelta(days=int(days)) if days else None,
            )
        except DomainError as error:
            add_errors(form, error, {"/expires_at": "days"})
        else:
            new_password = _new_password_context(instance, user.name, secret)
            form = UserForm(is_open=is_open)
    is_reachable = instance.current_phase in REACHABLE
    search = AuditFilterForm(request.GET)
    search_text, token = (
        (search.cleaned_data["q"], search.cleaned_data["page_token"]) if search.is_valid() else ("", "")
    )
    page = None
    if is_reachable:
        page = user_selectors.user_page(
            instance, contains=search_text, page_token=token or None, page_size=PAGE_SIZE_DEFAULT
        )
    context = {
        "form": form, "page": page, "words": search_text, "is_first": not token,
        "signs_in": sasl_route(instance) is not None, "deleted": services.deleted_users(instance), **new_password,
    }  # fmt: skip
    template = "instances/user_rows.html" if request.headers.get("HX-Request") else "instances/users.html"
    status = 422 if form.is_bound else 200
    return _forbid_caching(
        render_instance(
            request, template, instance, context, section="users", crumbs=[(_("Users"), None)], status=status
        ),
        new_password,
    )


@instance_page(Scope.USERS_READ)
@require_GET
def names_part(request: HttpRequest, instance: Instance) -> HttpResponse:
    """Renders the first names that contain a typed text, for completion."""
    prefix = request.GET.get("user", "")
    names = user_names(instance, contains=prefix) if len(prefix) <= USER_NAME_BYTES_MAX else ()
    return render_instance(request, "instances/user_options.html", instance, {"user_names": names}, section="users")


@instance_page(Scope.USERS_READ)
@require_http_methods(["GET", "POST"])
def user_page(request: HttpRequest, instance: Instance) -> HttpResponse:
    """Shows one user with passwords, access and expiry; a POST changes one of these or adds a second password."""
    acting = request.actor  # type: ignore[attr-defined]
    user = user_selectors.user(instance, request.GET.get("user", ""))
    action = request.POST.get("part", "")
    new_password: dict[str, Any] = {}
    try:
        if request.method == "POST":
            access.require(acting, Scope.USERS_WRITE)
            if action == "rotate":
                new_password = _new_password_context(
                    instance, user.name, services.add_secret(acting=acting, instance=instance, name=user.name)
                )
                user = user_selectors.user(instance, user.name)
            else:
                return _apply_action(request, instance, user, action)
    except DomainError as error:
        messages.error(request, wording(error))
        return redirect(user_url("page-user", instance.pk, user.name))
    context = {
        "user": user,
        "expires_at": user_selectors.instant_of(user.expires_at_ms),
        "secrets": _secrets(user),
        "may_rotate": len(user.secrets) < SECRETS_PER_USER_MAX,
        "form": ExpiryForm(),
        **new_password,
    }
    return _forbid_caching(
        render_instance(
            request, "instances/user.html", instance, context, section="users", crumbs=_crumbs(instance, user.name)
        ),
        new_password,
    )


def _apply_action(request: HttpRequest, instance: Instance, user: UserDescription, action: str) -> HttpResponse:
    """Carries out the action of a button, and redirects to the user's page."""
    acting = request.actor  # type: ignore[attr-defined]
    text_values = {"user": user.name}
    user_page_url = user_url("page-user", instance.pk, user.name)
    if action == "disable":
        services.update_user(acting=acting, instance=instance, name=user.name, disabled=True)
        back = user_url("page-user-enable", instance.pk, user.name)
        messages.info(request, _("%(user)s is disabled; its connections end.") % text_values, extra_tags=f"undo {back}")
    elif action in ("full", "limited"):
        services.update_user(acting=acting, instance=instance, name=user.name, superuser=action == "full")
        text = _("%(user)s has full access.") if action == "full" else _("%(user)s has what access rules allow.")
        messages.success(request, text % text_values)
    elif action == "expiry":
        form = ExpiryForm(request.POST)
        if form.is_valid():
            days = form.cleaned_data["days"]
            services.update_user(
                acting=acting, instance=instance, name=user.name, never_expires=days is None,
                expires_at=None if days is None else timezone.now() + timedelta(days=days),
            )  # fmt: skip
            messages.success(request, _("Saved."))
    elif action == "remove":
        question = Question(
            title=_("Remove a password of %(user)s?") % text_values,
            consequence=_("Connections opened with it end within a second, and it cannot be brought back."),
            action_label=_("Remove"),
            back=user_page_url,
        )
        crumbs = [(instance.name, reverse("page-instance", args=[instance.pk])), *_crumbs(instance, user.name)]
        question_page = ask_first(request, question, section="users", crumbs=crumbs, context={"instance": instance})
        if question_page is not None:
            return question_page
        services.remove_secret(
            acting=acting, instance=instance, name=user.name, secret_id=request.POST.get("secret", "")
        )
        messages.success(request, _("The password does not work any more."))
    return redirect(user_page_url)


@instance_page(Scope.USERS_WRITE)
@require_POST
def enable_user(request: HttpRequest, instance: Instance) -> HttpResponse:
    """Enables a disabled user."""
    name = request.GET.get("user", "")
    try:
        services.update_user(acting=request.actor, instance=instance, name=name, disabled=False)  # type: ignore[attr-defined]
        messages.success(request, _("%(user)s may sign in again.") % {"user": name})
    except DomainError as error:
        messages.error(request, wording(error))
        return redirect("page-users", instance.pk)
    return redirect(user_url("page-user", instance.pk, name))


@instance_page(Scope.USERS_WRITE)
@require_http_methods(["GET", "POST"])
def delete_page(request: HttpRequest, instance: Instance) -> HttpResponse:
    """Deletes a user after its name was typed: traffic stops. It can be restored, unless it is deleted for good."""
    user = user_selectors.user(instance, request.GET.get("user", ""))
    if request.method == "POST" and request.POST.get("typed") == user.name:
        for_good = "for_good" in request.POST
        try:
            deleted_row = services.delete_user(
                acting=request.actor,  # type: ignore[attr-defined]
                instance=instance, name=user.name, for_good=for_good,
            )  # fmt: skip
        except DomainError as error:
            messages.error(request, wording(error))
            return redirect(user_url("page-user", instance.pk, user.name))
        text = _("User %(user)s is deleted.") % {"user": user.name}
        if deleted_row is None:
            messages.success(request, text)
        else:
            back = user_url("page-user-restore", instance.pk, user.name)
            messages.info(request, text, extra_tags=f"undo {back}")
        return redirect("page-users", instance.pk)
    context = {
        "user": user,
        "days": services.USER_RESTORE_PERIOD.days,
        "last_used_at": user_selectors.instant_of(user.last_used_at_ms),
        "rules": len(acl_selectors.acl_list(instance, AclFilter(principal=principal_of(user.name)))),
        "quotas": sum(
            quota.user is not None and quota.user.name == user.name for quota in quota_selectors.quota_list(instance)
        ),
    }
    crumbs = _crumbs(instance, user.name, (_("Delete"), None))
    return render_instance(request, "instances/user_delete.html", instance, context, section="users", crumbs=crumbs)


def _crumbs(instance: Instance, name: str, *more: Crumb) -> list[Crumb]:
    user_page_url = user_url("page-user", instance.pk, name) if more else None
    return [(_("Users"), reverse("page-users", args=[instance.pk])), (name, user_page_url), *more]


def _new_password_context(instance: Instance, name: str, secret: NewSecret) -> dict[str, Any]:
    """Returns the context of a new password, with snippets for the first route with SASL."""
    route = sasl_route(instance)
    security = client_security(route, Login(name, secret.password), ca_url())
    topics = selectors.recently_created_topics(instance)
    return {
        "made": name,
        "password": secret.password,
        "properties": properties(security) if route else "",
        "snippets": snippets(route, topics[0] if topics else None, security) if route else [],
        "ca_command": security.ca_command,
    }


def _forbid_caching(response: HttpResponse, new_password: dict[str, Any]) -> HttpResponse:
    """Forbids caching of a page with a new password."""
    if new_password:
        response.headers["Cache-Control"] = "no-store"
    return response


def _secrets(user: UserDescription) -> list[dict[str, Any]]:
    return [
        {
            "id": secret.id,
            "created_at": user_selectors.instant_of(secret.created_at_ms),
            "last_used_at": user_selectors.instant_of(secret.last_used_at_ms),
            "mechanisms": secret.mechanisms,
        }
        for secret in user.secrets
    ]
