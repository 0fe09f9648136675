"""Forms of users: they parse the input; services and brokers decide."""

from __future__ import annotations

from typing import Any, Final

from django import forms
from django.utils.translation import gettext_lazy as _

from instances.acls.presets import Preset
from instances.users.limits import USER_NAME_BYTES_MAX
from instances.users.naming import name_fault
from tenants.wording import localized

DAYS = (("", _("Never")), ("30", _("30 days")), ("90", _("90 days")), ("365", _("1 year")))
# A choice of rights beside the presets of access rules.
FULL_ACCESS: Final = "full_access"


class UserForm(forms.Form):
    """A user to create, with its rights. By default it may produce and consume; an open instance lacks this choice."""

    RIGHTS = (
        (Preset.PRODUCE_CONSUME.value, _("produce and consume")),
        (FULL_ACCESS, _("do everything (full access)")),
        (Preset.NOTHING.value, _("do what access rules allow")),
    )

    name = forms.CharField(
        label=_("Name"), max_length=USER_NAME_BYTES_MAX,
        help_text=_("What the client signs in as, for example the name of the application."),
    )  # fmt: skip
    rights = forms.ChoiceField(
        label=_("May"), choices=RIGHTS, required=False, initial=Preset.PRODUCE_CONSUME.value,
        help_text=_("Producing and consuming holds for every topic, group and transactional id. Access has the rules."),
    )  # fmt: skip
    days = forms.ChoiceField(label=_("Expires after"), choices=DAYS, required=False)

    def __init__(self, *args: Any, is_open: bool = False, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        if is_open:
            field = self.fields["rights"]
            assert isinstance(field, forms.ChoiceField)
            field.choices = [choice for choice in self.RIGHTS if choice[0] != Preset.PRODUCE_CONSUME]
            field.initial = Preset.NOTHING.value
            field.help_text = _("This instance is open: what has no access rule is everybody's to use.")

    @property
    def is_superuser(self) -> bool:
        return bool(self.cleaned_data["rights"] == FULL_ACCESS)

    @property
    def preset(self) -> Preset:
        """Access rules that the user gets."""
        rights = self.cleaned_data["rights"]
        return Preset.NOTHING if rights in ("", FULL_ACCESS) else Preset(rights)

    def clean_name(self) -> str:
        fault = name_fault(self.cleaned_data["name"])
        if fault is not None:
            raise forms.ValidationError(localized(fault))
        return str(self.cleaned_data["name"])


class ExpiryForm(forms.Form):
    days = forms.ChoiceField(label=_("Expires after"), choices=DAYS, required=False)

    def clean_days(self) -> Any:
        return int(self.cleaned_data["days"]) if self.cleaned_data["days"] else None
