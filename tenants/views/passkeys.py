"""Sign-in library's pages of passkeys with other options."""

from __future__ import annotations

from typing import Any

from allauth.mfa.webauthn.views import AddWebAuthnView, LoginWebAuthnView
from django.http import HttpRequest, HttpResponse

from tenants import counting
from tenants.limits import PASSKEY_QUESTIONS_PER_ADDRESS_AND_MINUTE_MAX


class AddPasskeyView(AddWebAuthnView):
    """Adds a passkey, if possible a discoverable one with user verification, which can replace the password.

    Any other passkey is only a second factor.
    """

    def get_context_data(self, **kwargs: Any) -> dict[str, Any]:
        context: dict[str, Any] = super().get_context_data(**kwargs)
        options = context["js_data"]["creation_options"]["publicKey"]
        selection_changes = {"residentKey": "preferred", "requireResidentKey": False, "userVerification": "preferred"}
        selection = {**dict(options.get("authenticatorSelection") or {}), **selection_changes}
        context["js_data"]["creation_options"] = {"publicKey": {**dict(options), "authenticatorSelection": selection}}
        return context


class LoginPasskeyView(LoginWebAuthnView):
    """Sign-in by a passkey only.

    Options are created on request, because otherwise each view of the login page would create a session.
    """

    def get(self, request: HttpRequest, *args: Any, **kwargs: Any) -> HttpResponse:
        rate = f"{PASSKEY_QUESTIONS_PER_ADDRESS_AND_MINUTE_MAX}/m"
        if counting.count(request, "passkey_question", rate, counting.network_of(request)) is None:
            return HttpResponse(status=429)
        response: HttpResponse = super().get(request, *args, **kwargs)
        response.headers["Cache-Control"] = "no-store"
        return response


add_passkey = AddPasskeyView.as_view()
login_by_passkey = LoginPasskeyView.as_view()
