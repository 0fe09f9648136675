"""Tax rates by time in the operator panel."""

from __future__ import annotations

from typing import Any

from django import forms
from django.contrib import admin
from django.http import HttpRequest
from django.utils.translation import gettext_lazy as _

from billing import tax
from billing.models import TaxChange
from tenants.actors import Actor
from tenants.errors import DomainError
from tenants.operator import OperatorAdmin, acting_operator, operator_action
from tenants.wording import localized


class TaxChangeForm(forms.ModelForm):
    """Change of a tenant's tax rate, checked against issued invoices."""

    class Meta:
        model = TaxChange
        fields = ("tenant", "effective_from", "percent")

    def clean(self) -> dict[str, Any] | None:
        cleaned = super().clean() or self.cleaned_data
        if not self.errors:
            try:
                tax.check(cleaned["tenant"], cleaned["effective_from"], cleaned["percent"])
            except DomainError as error:
                self.add_error(None, localized(error.detail))
        return cleaned


@admin.register(TaxChange)
class TaxChangeAdmin(OperatorAdmin):
    """Tax rates by time. A change cannot be edited; it can be removed as long as no invoice has used it."""

    form = TaxChangeForm
    may_add = True
    when_empty = _("No rate of tax changes. The billing profile has the rate from the beginning.")
    symbol = "percent"
    list_display = ("tenant", "effective_from", "percent")
    list_select_related = ("tenant",)
    search_fields = ("tenant__name", "tenant__slug")
    actions = ("remove",)

    def save_model(self, request: HttpRequest, obj: TaxChange, form: Any, change: bool) -> None:
        added = tax.add(
            acting=acting_operator(request), tenant=obj.tenant, effective_from=obj.effective_from, percent=obj.percent
        )
        obj.pk = added.pk

    @operator_action(_("Take back"))
    def remove(self, acting: Actor, change: TaxChange) -> Any:
        tax.remove(acting=acting, change=change)
        return _("taken back")
