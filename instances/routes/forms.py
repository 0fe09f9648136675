"""Forms for routes. They read typed text; services check it."""

from __future__ import annotations

from typing import Any, Final

from django import forms
from django.utils.translation import gettext as _
from django.utils.translation import gettext_lazy

from instances import interfaces
from instances.choices import RouteSecurity
from instances.limits import ADDRESS_CHARS_MAX, NAME_PATTERN
from instances.models import HOST_CHARS_MAX, Route
from instances.routes.kinds import (
    CIDRS_MAX,
    PLAINTEXT,
    ROUTE_CONNECTIONS_MAX,
    ROUTE_NAME_CHARS_MAX,
    SASL_TLS,
    SECURITIES,
)
from instances.routes.validation import CONFIRM_PLAINTEXT

ADDRESS_LIST_CHARS_MAX: Final = CIDRS_MAX * (ADDRESS_CHARS_MAX + 2)
LIST_FIELDS: Final = ("allow_list", "proxies")
RULES_FIELD: Final = "principal_mapping_rules"
LINES_WIDGET: Final = forms.Textarea(attrs={"rows": 4})  # copied by each field
SECURITY_CHOICES: Final = [(kind, RouteSecurity(kind).label) for kind in SECURITIES]


class RouteForm(forms.Form):
    """Form for a new route, or with `route` for an existing one. It asks for confirmation where a new plaintext route
    would be reachable from other machines.
    """

    name = forms.RegexField(
        NAME_PATTERN, label=gettext_lazy("Name"), max_length=ROUTE_NAME_CHARS_MAX,
        help_text=gettext_lazy("For yourself, such as office. It cannot be changed."),
        error_messages={"invalid": gettext_lazy("Use a to z, digits and dashes, beginning with a letter.")},
    )  # fmt: skip
    security = forms.ChoiceField(label=gettext_lazy("Security"), choices=SECURITY_CHOICES, initial=SASL_TLS)
    confirm_plaintext = forms.BooleanField(
        label=gettext_lazy("Open it without security all the same"), required=False,
        help_text=gettext_lazy(
            "Brokers can be reached from other machines. Everybody who reaches a route without security has the rights "
            "of ANONYMOUS, in an open instance to everything, and what is sent can be read on the way."
        ),
    )  # fmt: skip
    principal_mapping_rules = forms.CharField(
        label=gettext_lazy("Names of users by certificate"), widget=LINES_WIDGET, required=False,
        help_text=gettext_lazy(
            "Kafka's ssl.principal.mapping.rules, for security by certificate. DEFAULT: the distinguished name."
        ),
    )  # fmt: skip
    allow_list = forms.CharField(
        label=gettext_lazy("May connect"), widget=LINES_WIDGET, required=False, max_length=ADDRESS_LIST_CHARS_MAX,
        help_text=gettext_lazy("One address or network (10.0.0.0/8) a line. Empty: from anywhere."),
    )  # fmt: skip
    connections_max = forms.IntegerField(
        label=gettext_lazy("Connections, at most"), min_value=1, max_value=ROUTE_CONNECTIONS_MAX, required=False,
        help_text=gettext_lazy("On each broker. Empty: as many as the instance may have."),
    )  # fmt: skip
    advertised_host = forms.CharField(
        label=gettext_lazy("Advertised host"), max_length=HOST_CHARS_MAX, required=False,
        help_text=gettext_lazy("The host that clients connect to, such as a load balancer. Empty: the brokers."),
    )  # fmt: skip
    proxies = forms.CharField(
        label=gettext_lazy("Proxies"), widget=LINES_WIDGET, required=False, max_length=ADDRESS_LIST_CHARS_MAX,
        help_text=gettext_lazy(
            "Load balancers that speak PROXY protocol version 2, an address or network a line. They must speak it, and "
            "nobody else may."
        ),
    )  # fmt: skip

    def __init__(self, *args: Any, route: Route | None = None, **kwargs: Any) -> None:
        if route is not None:
            kwargs["initial"] = _initial(route)
        super().__init__(*args, **kwargs)
        is_already_plaintext = route is not None and route.security == PLAINTEXT
        if is_already_plaintext or not interfaces.exposure.implementation():
            del self.fields[CONFIRM_PLAINTEXT]
        if route is not None:
            del self.fields["name"]

    def clean(self) -> dict[str, Any]:
        values = super().clean() or {}
        for name in LIST_FIELDS:
            if len(values.get(name, "").split()) > CIDRS_MAX:
                self.add_error(name, _("A list has at most %(n)s entries.") % {"n": CIDRS_MAX})
        if values.get("security") == PLAINTEXT and values.get(CONFIRM_PLAINTEXT) is False:
            self.add_error("security", _("Confirm it below, or choose another security."))
        return values

    def arguments(self) -> dict[str, Any]:
        """Returns the valid values as arguments of the services, without mapping rules that were left empty."""
        values = dict(self.cleaned_data)
        for name in LIST_FIELDS:
            values[name] = values[name].split()
        if not values.get(RULES_FIELD):
            values.pop(RULES_FIELD, None)
        return values


def _initial(route: Route) -> dict[str, Any]:
    values = {name: "\n".join(getattr(route, name)) for name in LIST_FIELDS}
    scalars = {name: getattr(route, name) for name in ("security", "connections_max", "advertised_host", RULES_FIELD)}
    return values | scalars
