"""Pages of single sign-on: search for the tenant, redirects to its provider and back, and the tenant's settings."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import replace
from datetime import timedelta
from functools import wraps
from typing import Any
from urllib.parse import urlencode

from allauth.account.views import logout as library_logout
from django.conf import settings
from django.contrib import messages
from django.contrib.auth import login, logout
from django.http import HttpRequest, HttpResponse
from django.shortcuts import redirect
from django.urls import reverse
from django.utils.http import url_has_allowed_host_and_scheme
from django.utils.translation import gettext as _
from django.utils.translation import gettext_noop
from django.views.decorators.debug import sensitive_post_parameters
from django.views.decorators.http import require_GET, require_POST

from tenants import access, counting, services, sessions
from tenants.actors import Actor, system_actor
from tenants.choices import Scope
from tenants.errors import ConfirmationNeeded, DomainError, Message, NotFound
from tenants.forms import SsoForm
from tenants.limits import DOMAIN_CHARS_MAX, DOMAIN_PROOF_KEPT_DAYS, SSO_STARTS_PER_ADDRESS_AND_MINUTE_MAX
from tenants.mails import public_url
from tenants.models import DomainProof, SsoConfiguration, Tenant
from tenants.requests import actor_of, client_ip
from tenants.services.sso import configuration, member_for_identity, record_refusal, sso_of
from tenants.services.sso_domains import proofs_of
from tenants.sso import domains, pending, protocol, provider
from tenants.sso.protocol import SsoFailed
from tenants.views.asking import Question, ask_first
from tenants.views.base import add_errors, console_page, render_page, wording
from tenants.views.entry import BACKEND
from tenants.wording import localized

CODE_CHARS_MAX = 4_096
# Error codes of RFC 6749 and OpenID Connect; other text of the URL is not shown.
ERROR_CODE = re.compile(r"[a-z_]{1,40}")
SLUG_CHARS_MAX = 48
FIELDS = {"/client_secret": "client_secret"}


def limited(view: Callable[..., HttpResponse]) -> Callable[..., HttpResponse]:
    """Decorates a page that looks up a tenant by its short name: limits its requests per client network and minute."""

    @wraps(view)
    def limited_view(request: HttpRequest, **kwargs: str) -> HttpResponse:
        rate = f"{SSO_STARTS_PER_ADDRESS_AND_MINUTE_MAX}/m"
        names_tenant = bool(kwargs) or "tenant" in request.GET
        if names_tenant and counting.count(request, "sso", rate, counting.network_of(request)) is None:
            return _uncached(render_page(request, "console/too_many.html", status=429))
        return view(request, **kwargs)

    return limited_view


@require_GET
@limited
def find(request: HttpRequest) -> HttpResponse:
    """Shows the page that asks for the tenant's short name and leads to the tenant's provider.

    A session of single sign-on that must be confirmed again is redirected to the provider of its own tenant, unless its
    user is no longer a member.
    """
    next_path = request.GET.get("next", "/")
    is_again = sessions.sso_tenant_of(request) is not None and "again" in request.GET
    session_tenant = actor_of(request).tenant if is_again else None
    if session_tenant is not None:
        return redirect(
            f"{reverse('page-sso-begin', args=[session_tenant.slug])}?{urlencode({'again': '1', 'next': next_path})}"
        )
    slug = request.GET.get("tenant", "").strip().lower()
    sso = services.sso_of_slug(slug) if slug and len(slug) <= SLUG_CHARS_MAX else None
    context = {"slug": slug[:SLUG_CHARS_MAX], "sso": sso, "issuer": _host_of(sso), "is_asked": "tenant" in request.GET}
    return _uncached(render_page(request, "console/sso_find.html", context))


@require_GET
@limited
def begin(request: HttpRequest, slug: str) -> HttpResponse:
    """Redirects to the tenant's provider."""
    sso = services.sso_of_slug(slug)
    if sso is None:
        return _uncached(render_page(request, "console/sso_find.html", {"slug": slug, "is_asked": True}, status=404))
    next_path = request.GET.get("next", "/")
    is_own_host = url_has_allowed_host_and_scheme(next_path, {request.get_host()}, require_https=request.is_secure())
    sign_in = pending.new_sign_in(sso.pk, sso.version, next_path if is_own_host else "/")
    try:
        url = protocol.authorization_url(
            provider.configuration_of(sso.tenant_id, sso.issuer), client_id=sso.client_id,
            redirect_uri=redirect_uri(request, sso), state=sign_in.state, nonce=sign_in.nonce,
            verifier=sign_in.verifier, prompt_login="again" in request.GET,
        )  # fmt: skip
    except SsoFailed as error:
        return _error_page(request, sso, error)
    response = HttpResponse(status=302, headers={"Location": url})
    pending.set_cookie(response, sign_in)
    return _uncached(response)


@require_GET
@limited
def complete(request: HttpRequest, slug: str) -> HttpResponse:
    """Verifies the provider's response, and signs the member in to this tenant only."""
    sso = services.sso_of_slug(slug)
    if sso is None:
        return _uncached(render_page(request, "console/sso_find.html", {"slug": slug, "is_asked": True}, status=404))
    claims = None
    try:
        sign_in, code = _read_pending(request, sso)
        claims = provider.claims_of(
            sso, code=code, redirect_uri=redirect_uri(request, sso), verifier=sign_in.verifier, nonce=sign_in.nonce
        )
        member = member_for_identity(sso=sso, claims=claims)
    except SsoFailed as error:
        if claims is not None:
            record_refusal(sso=sso, claims=claims, reason=error.reason, acting=_visitor(request, sso))
        return _error_page(request, sso, error)
    if not request.user.is_authenticated or request.user.pk != member.user_id:
        request.session.flush()
    login(request, member.user, backend=BACKEND)
    sessions.begin_sso(request, member.tenant_id, claims.id_token)
    request.session["tenant_id"] = member.tenant_id
    response = redirect(sign_in.onward)
    pending.delete_cookie(response)
    return _uncached(response)


def _read_pending(request: HttpRequest, sso: SsoConfiguration) -> tuple[pending.PendingSignIn, str]:
    """Returns the sign-in to which the provider's response belongs, and its code. Raises `SsoFailed`."""
    sign_in = pending.read_cookie(request, sso.pk, sso.version, request.GET.get("state", ""))
    if sign_in is None:
        detail = Message(gettext_noop("This sign-in was not begun in this browser, or it took too long. Begin again."))
        raise SsoFailed("unknown_state", detail)
    error = request.GET.get("error", "")
    if error:
        shown_code = error if ERROR_CODE.fullmatch(error) else "error"
        raise SsoFailed(
            "refused", Message(gettext_noop("The provider refused the sign-in: %(error)s."), error=shown_code)
        )
    issuer, code = request.GET.get("iss", sso.issuer), request.GET.get("code", "")
    if issuer != sso.issuer or not 0 < len(code) <= CODE_CHARS_MAX:
        raise SsoFailed("no_code", Message(gettext_noop("The provider's answer cannot be understood.")))
    return sign_in, code


def log_out(request: HttpRequest) -> HttpResponse:
    """Ends the session. After a session of single sign-on the page has a link that ends the one at the provider, too.

    It does not redirect there, because people who leave the console may stay in other applications of the organisation,
    and the content security policy forbids forms that lead to another site.
    """
    tenant_id = sessions.sso_tenant_of(request) if request.method == "POST" else None
    sso = None if tenant_id is None else sso_of(tenant_id)
    if sso is None:
        response: HttpResponse = library_logout(request)
        return response
    at_provider = _provider_logout(request, sso)
    logout(request)
    context = {"sso": sso, "issuer": _host_of(sso), "at_provider": at_provider}
    return _uncached(render_page(request, "console/sso_ended.html", context))


def _provider_logout(request: HttpRequest, sso: SsoConfiguration) -> str | None:
    """Returns the URL that ends the session at the provider; None if it has none or does not answer."""
    try:
        return protocol.logout_url(
            provider.configuration_of(sso.tenant_id, sso.issuer), client_id=sso.client_id,
            id_token=sessions.sso_id_token_of(request), redirect_uri=_absolute(request, _ended_path(sso.tenant)),
        )  # fmt: skip
    except SsoFailed:
        return None


def _ended_path(tenant: Tenant) -> str:
    return reverse("page-sso-ended", args=[tenant.slug])


@require_GET
@limited
def ended(request: HttpRequest, slug: str) -> HttpResponse:
    """Page to which the provider sends browsers after its own session has ended."""
    sso = services.sso_of_slug(slug)
    if sso is None:
        return _uncached(render_page(request, "console/sso_find.html", {"slug": slug, "is_asked": True}, status=404))
    return _uncached(
        render_page(request, "console/sso_ended.html", {"sso": sso, "issuer": _host_of(sso), "is_over": True})
    )


def redirect_uri(request: HttpRequest, sso: SsoConfiguration) -> str:
    """Returns the address to which the provider sends browsers back; each tenant has its own."""
    return _absolute(request, reverse("page-sso-callback", args=[sso.tenant.slug]))


def _visitor(request: HttpRequest, sso: SsoConfiguration) -> Actor:
    """Returns the actor of a refused sign-in, without the account to which the browser may be signed in.

    The tenant reads the audit entry, and that account may not be one of its members.
    """
    acting = system_actor("sso", sso.tenant, request_id=getattr(request, "request_id", None))
    return replace(acting, ip=client_ip(request))


def _error_page(request: HttpRequest, sso: SsoConfiguration, error: SsoFailed) -> HttpResponse:
    status = {"busy": 503, "provider_unreachable": 502}.get(error.reason, 403)
    context = {"words": localized(error.detail), "sso": sso, "reason": error.reason}
    response = render_page(request, "console/sso_failed.html", context, status=status)
    pending.delete_cookie(response)
    return _uncached(response)


def _host_of(sso: SsoConfiguration | None) -> str:
    return "" if sso is None else sso.issuer.partition("://")[2].partition("/")[0]


def _uncached(response: HttpResponse) -> HttpResponse:
    response.headers["Cache-Control"] = "no-store"
    return response


@sensitive_post_parameters("client_secret")
@console_page(Scope.MEMBERS_READ)
def settings_page(request: HttpRequest) -> HttpResponse:
    """Shows and sets the tenant's identity provider."""
    acting = request.actor  # type: ignore[attr-defined]
    tenant = access.tenant_of(acting)
    sso = _sso_or_none(acting)
    form = SsoForm(request.POST or None, initial=_initial(sso, tenant))
    if form.is_bound and form.is_valid():
        try:
            services.set_sso(acting=acting, **form.cleaned_data)
            messages.success(request, _("Saved. The next sign-in follows it."))
            return redirect("page-sso-settings")
        except DomainError as error:
            add_errors(form, error, FIELDS)
    context = {
        "form": form, "sso": sso, "tenant": tenant, "may_set": access.permits(acting, Scope.MEMBERS_WRITE),
        "begin_url": _absolute(request, reverse("page-sso-begin", args=[tenant.slug])),
        "redirect_uri": _absolute(request, reverse("page-sso-callback", args=[tenant.slug])),
        "ended_url": _absolute(request, _ended_path(tenant)),
        "proofs": [_proof_words(proof) for proof in proofs_of(tenant)] if sso is not None else [],
    }  # fmt: skip
    context["is_unproved"] = any(row["proof"].proved_at is None for row in context["proofs"])
    crumbs = [(_("Settings"), reverse("page-settings")), (_("Single sign-on"), None)]
    status = 422 if form.is_bound else 200
    return render_page(request, "console/sso_settings.html", context, section="settings", crumbs=crumbs, status=status)


def _proof_words(proof: DomainProof) -> dict[str, Any]:
    return {
        "proof": proof, "name": domains.record_name(proof.domain), "value": domains.record_value(proof.challenge),
        "kept_until": proof.missing_since and proof.missing_since + timedelta(days=DOMAIN_PROOF_KEPT_DAYS),
    }  # fmt: skip


@console_page(Scope.MEMBERS_WRITE)
@require_POST
def prove_domain(request: HttpRequest) -> HttpResponse:
    """Looks for the DNS record of one domain."""
    try:
        proof = services.prove_domain(
            acting=request.actor,  # type: ignore[attr-defined]
            domain=request.POST.get("domain", "")[:DOMAIN_CHARS_MAX],
        )
        messages.success(request, _("%(domain)s is proved. Its addresses may sign in.") % {"domain": proof.domain})
    except ConfirmationNeeded:
        raise
    except DomainError as error:
        messages.error(request, wording(error))
    return redirect(reverse("page-sso-settings") + "#domains")


@console_page(Scope.MEMBERS_WRITE)
@require_POST
def remove(request: HttpRequest) -> HttpResponse:
    """Ends single sign-on after a question."""
    acting = request.actor  # type: ignore[attr-defined]
    configuration(acting)
    question = Question(
        title=_("End single sign-on?"),
        consequence=_(
            "Members sign in by password or passkey again; those who never had one choose a password by mail."
        ),
        action_label=_("End single sign-on"),
        back=reverse("page-sso-settings"),
    )
    question_page = ask_first(request, question, section="settings", crumbs=[(_("Single sign-on"), question.back)])
    if question_page is not None:
        return question_page
    try:
        services.remove_sso(acting=acting)
        messages.success(request, _("Single sign-on has ended."))
    except ConfirmationNeeded:
        raise
    except DomainError as error:
        messages.error(request, wording(error))
    return redirect("page-sso-settings")


def _sso_or_none(acting: Actor) -> SsoConfiguration | None:
    try:
        return configuration(acting)
    except NotFound:
        return None


def _initial(sso: SsoConfiguration | None, tenant: Tenant) -> dict[str, Any]:
    if sso is None:
        return {}
    return {
        "issuer": sso.issuer, "client_id": sso.client_id, "domains": "\n".join(sso.domains),
        "role_claim": sso.role_claim, "required": tenant.requires_sso,
        "assume_email_verified": sso.assume_email_verified,
        "roles": "\n".join(f"{value} = {role}" for value, role in sorted(sso.roles.items())),
    }  # fmt: skip


def _absolute(request: HttpRequest, path: str) -> str:
    return request.build_absolute_uri(path) if settings.PUBLIC_URL_IS_LOOPBACK else public_url(path)
