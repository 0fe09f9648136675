"""Pages of members and invitations."""

from __future__ import annotations

from django.conf import settings
from django.contrib import messages
from django.http import HttpRequest, HttpResponse
from django.shortcuts import redirect
from django.urls import reverse
from django.utils import timezone
from django.utils.translation import gettext as _
from django.views.decorators.http import require_POST

from tenants import access, selectors, services
from tenants.choices import Role, Scope
from tenants.errors import ConfirmationNeeded, DomainError
from tenants.forms import InviteForm
from tenants.views.asking import Question, ask_first
from tenants.views.base import add_errors, console_page, render_page, wording


@console_page(Scope.MEMBERS_READ)
def members_page(request: HttpRequest) -> HttpResponse:
    """Shows members and open invitations; a POST invites and shows the link once."""
    acting = request.actor  # type: ignore[attr-defined]
    tenant = access.tenant_of(acting)
    form = InviteForm(request.POST or None)
    link = None
    if form.is_bound and form.is_valid():
        try:
            access.require(acting, Scope.MEMBERS_WRITE)
            _invitation, secret = services.invite_member(acting=acting, **form.cleaned_data)
            link = services.invitation_url(secret)
        except DomainError as error:
            add_errors(form, error)
    managed = access.MANAGED_ROLES.get(acting.role, frozenset())
    context = {
        "members": selectors.members_with_factors(tenant),
        "needs_factor": tenant.requires_second_factor,
        "invitations": selectors.invitations(tenant),
        "form": InviteForm() if link else form,
        "link": link,
        "is_mailed": settings.MAIL_IS_CONFIGURED,
        "roles": [(role.value, role.label) for role in Role],
        "managed": {role.value for role in managed},
        "role_descriptions": _role_descriptions(),
        "now": timezone.now(),
    }
    status = 422 if form.is_bound and not link else 200
    response = render_page(
        request, "console/members.html", context, section="members", crumbs=[(_("Members"), None)], status=status
    )
    if link:
        response.headers["Cache-Control"] = "no-store"
    return response


def _role_descriptions() -> list[tuple[str, str]]:
    return [
        (Role.OWNER.label, _("Everything, and makes other owners.")),
        (Role.ADMIN.label, _("Everything but the budget and billing details.")),
        (Role.DEVELOPER.label, _("Instances, topics, quotas, tokens of their own.")),
        (Role.FINANCE.label, _("Usage, cost, invoices, audit log.")),
        (Role.VIEWER.label, _("Sees instances, topics, quotas and usage; changes nothing.")),
    ]


@console_page(Scope.MEMBERS_WRITE)
@require_POST
def change_role(request: HttpRequest, member_id: str) -> HttpResponse:
    """Changes the role of a member."""
    acting = request.actor  # type: ignore[attr-defined]
    member = access.member(acting, member_id)
    role = request.POST.get("role", "")
    if role not in Role.values:
        messages.error(request, _("There is no such role."))
        return redirect("page-members")
    text_values = {"who": member.user.email, "role": Role(role).label}
    question_page = _ask(
        request,
        _("Make %(who)s %(role)s?") % text_values,
        _("The rights of %(role)s apply from the next request of %(who)s. Now: %(now)s.")
        % (text_values | {"now": member.get_role_display()}),
        _("Change the role"),
    )
    if question_page is not None and role != member.role:
        return question_page
    try:
        services.change_role(acting=acting, member=member, role=role)
        messages.success(request, _("%(who)s is %(role)s.") % text_values)
    except ConfirmationNeeded:
        raise
    except DomainError as error:
        messages.error(request, wording(error))
    return redirect("page-members")


@console_page(Scope.MEMBERS_READ)
@require_POST
def remove_member(request: HttpRequest, member_id: str) -> HttpResponse:
    """Ends a membership, also one's own; its tokens stop working."""
    acting = request.actor  # type: ignore[attr-defined]
    member = access.member(acting, member_id)
    is_leaving = member.user_id == request.user.pk
    text_values = {"who": member.user.email, "tenant": member.tenant.name}
    question_page = _ask(
        request,
        (_("Leave %(tenant)s?") if is_leaving else _("Remove %(who)s?")) % text_values,
        _("Access to %(tenant)s and the API tokens of %(who)s end at once. Only an invitation brings access back.")
        % text_values,
        _("Leave") if is_leaving else _("Remove"),
    )
    if question_page is not None:
        return question_page
    try:
        services.remove_member(acting=acting, member=member)
        messages.success(request, _("%(who)s has no access any more.") % {"who": member.user.email})
    except ConfirmationNeeded:
        raise
    except DomainError as error:
        messages.error(request, wording(error))
        return redirect("page-members")
    return redirect("/" if is_leaving else "page-members")


@console_page(Scope.MEMBERS_WRITE)
@require_POST
def revoke_invitation(request: HttpRequest, invitation_id: str) -> HttpResponse:
    """Revokes an open invitation."""
    acting = request.actor  # type: ignore[attr-defined]
    invitation = access.invitation(acting, invitation_id)
    question_page = _ask(
        request,
        _("Revoke the invitation of %(who)s?") % {"who": invitation.email},
        _("Its link stops working. You can invite again, with another link."),
        _("Revoke"),
    )
    if question_page is not None:
        return question_page
    try:
        services.revoke_invitation(acting=acting, invitation=invitation)
        messages.success(request, _("The invitation is revoked."))
    except DomainError as error:
        messages.error(request, wording(error))
    return redirect("page-members")


def _ask(request: HttpRequest, title: str, consequence: str, action_label: str) -> HttpResponse | None:
    """Returns the page that asks for confirmation of an action on the page of members; None once it is confirmed."""
    question = Question(
        title=title, consequence=consequence, action_label=action_label, back=reverse("page-members")
    )  # fmt: skip
    return ask_first(request, question, section="members", crumbs=[(_("Members"), question.back)])
