"""Page of an instance's connections, searched and sorted, with the action that closes one."""

from __future__ import annotations

from django import forms
from django.contrib import messages
from django.http import HttpRequest, HttpResponse
from django.shortcuts import redirect
from django.utils.translation import gettext as _
from django.utils.translation import gettext_lazy
from django.views.decorators.http import require_GET, require_http_methods

from instances import services
from instances.clients.listing import CONTAINS_CHARS_MAX, DEFAULT_SORT, SORTS, connection_detail, connection_page
from instances.lifecycle.phases import REACHABLE
from instances.models import Instance
from instances.views.columns import SortableColumn, column_link
from instances.views.common import instance_page, render_instance
from tenants.choices import Scope
from tenants.errors import DomainError, NotFound, Unavailable
from tenants.limits import PAGE_SIZE_DEFAULT, PAGE_TOKEN_CHARS_MAX
from tenants.views.base import wording

COLUMNS = (
    SortableColumn("client_id", gettext_lazy("Client"), hidden_on_small_screens=False, is_text=True),
    SortableColumn("user", gettext_lazy("User"), hidden_on_small_screens=False, is_text=True),
    SortableColumn("address", gettext_lazy("Address"), is_text=True),
    SortableColumn("software", gettext_lazy("Software"), is_text=True),
    SortableColumn("broker", gettext_lazy("Broker")),
    SortableColumn("since", gettext_lazy("Since")),
    SortableColumn("requests", gettext_lazy("Requests")),
)


class ClientListForm(forms.Form):
    """Filter, order and page of the list of connections, from the query of its URL."""

    q = forms.CharField(required=False, max_length=CONTAINS_CHARS_MAX)
    sort = forms.ChoiceField(required=False, choices=[(name, name) for name in SORTS])
    page_token = forms.CharField(required=False, max_length=PAGE_TOKEN_CHARS_MAX)

    @property
    def list_query(self) -> tuple[str, str, str]:
        """Filter, order and page token; those of the first page of all connections if one of them is invalid."""
        if not self.is_valid():
            return "", DEFAULT_SORT, ""
        values = self.cleaned_data
        return values["q"], values["sort"] or DEFAULT_SORT, values["page_token"]


@instance_page(Scope.CLIENTS_READ)
@require_GET
def clients_page(request: HttpRequest, instance: Instance) -> HttpResponse:
    """Shows one page of connections, latest first; filter, order and page are in the URL."""
    search_text, sort, page_token = ClientListForm(request.GET).list_query
    page, error_text = None, ""
    if instance.current_phase in REACHABLE:
        try:
            page = connection_page(
                instance, contains=search_text, sort=sort, page_token=page_token, page_size=PAGE_SIZE_DEFAULT
            )
        except Unavailable as error:
            error_text = wording(error)
    columns = [column_link(column, search_text, sort) for column in COLUMNS]
    context = {"page": page, "words": search_text, "sort": sort, "columns": columns, "trouble": error_text}
    template = "instances/client_rows.html" if request.headers.get("HX-Request") else "instances/clients.html"
    return render_instance(request, template, instance, context, section="clients", crumbs=[(_("Clients"), None)])


@instance_page(Scope.CLIENTS_WRITE)
@require_http_methods(["GET", "POST"])
def close_page(request: HttpRequest, instance: Instance, connection_id: str) -> HttpResponse:
    """Shows the confirmation page before a connection is closed; a POST closes it."""
    acting = request.actor  # type: ignore[attr-defined]
    try:
        if request.method == "POST":
            connection = services.close_connection(acting=acting, instance=instance, connection_id=connection_id)
            name = connection.client_id or connection.address
            messages.success(request, _("The connection of %(client)s is closed.") % {"client": name})
            return redirect("page-clients", instance.pk)
        connection = connection_detail(instance, connection_id)
    except NotFound:
        messages.info(request, _("The connection is not there any more."))
        return redirect("page-clients", instance.pk)
    except DomainError as error:
        if error.http_status == 401:
            raise
        messages.error(request, wording(error))
        return redirect("page-clients", instance.pk)
    crumbs = [(_("Clients"), None)]
    context = {"connection": connection}
    return render_instance(request, "instances/client_close.html", instance, context, section="clients", crumbs=crumbs)
