"""Plans and their dated prices."""

from __future__ import annotations

import re
from collections.abc import Iterable
from decimal import Decimal

from django.core.exceptions import ValidationError
from django.db import models
from django.utils import timezone
from django.utils.translation import gettext_lazy as _

from billing.rating.accounts import UNIT_PRICE_STEP
from billing.rating.booked import BOOKED
from billing.rating.terms import Component, Meter, PriceList, Scheme, Tier
from billing.rating.tiers import parse_tiers
from tenants.currencies import DIGITS_STORED_MAX, minor_digits

CURRENCY_PATTERN = r"^[A-Z]{3}$"


class Plan(models.Model):
    """Plan, on sale or not, with the sizes that it includes and the largest sizes of an instance."""

    code = models.SlugField(_("code"), max_length=32, primary_key=True)
    name = models.CharField(_("name"), max_length=64)
    bandwidth_mb_s = models.PositiveIntegerField(_("included bandwidth, MB/s"))
    storage_gb = models.PositiveIntegerField(_("included storage, GB"))
    bandwidth_mb_s_max = models.PositiveIntegerField(_("largest bandwidth, MB/s"))
    storage_gb_max = models.PositiveIntegerField(_("largest storage, GB"))
    partitions_max = models.PositiveIntegerField(_("partitions"))
    idle_stop_days = models.PositiveSmallIntegerField(
        _("idle stop, days"),
        default=0,
        help_text=_("An instance that moved no byte for so long is suspended until its tenant resumes it. 0: never."),
    )
    position = models.PositiveSmallIntegerField(_("position"), default=0, help_text=_("Smallest first."))
    on_sale = models.BooleanField(_("on sale"), default=True)

    class Meta:
        ordering = ("position", "code")
        verbose_name = _("plan")
        verbose_name_plural = _("plans")
        constraints = (
            models.CheckConstraint(
                condition=models.Q(bandwidth_mb_s__gt=0, bandwidth_mb_s_max__gte=models.F("bandwidth_mb_s")),
                name="plan_bandwidth_range",
            ),
            models.CheckConstraint(
                condition=models.Q(storage_gb__gt=0, storage_gb_max__gte=models.F("storage_gb")),
                name="plan_storage_range",
            ),
        )

    def __str__(self) -> str:
        return self.name


def validate_price(name: str, price: Decimal | None) -> None:
    """Raises `ValidationError` for a negative price. None is a price that is not set, or could not be parsed."""
    if price is not None and price < 0:
        raise ValidationError({name: _("A price is not negative.")})


class Price(models.Model):
    """Price of a plan from an instant on. A price in force is never edited, only superseded."""

    plan = models.ForeignKey(Plan, on_delete=models.PROTECT, related_name="prices", verbose_name=_("plan"))
    effective_from = models.DateTimeField(_("effective from"))
    currency = models.CharField(_("currency"), max_length=3, default="EUR")
    base_per_hour = models.DecimalField(_("base per hour"), max_digits=12, decimal_places=4)
    per_mb_s_hour = models.DecimalField(_("per extra MB/s and hour"), max_digits=12, decimal_places=4)
    per_gb_hour = models.DecimalField(_("per extra GB and hour"), max_digits=12, decimal_places=6)

    class Meta:
        ordering = ("plan", "-effective_from")
        verbose_name = _("price")
        verbose_name_plural = _("prices")
        constraints = (
            models.UniqueConstraint(fields=("plan", "currency", "effective_from"), name="price_once_per_instant"),
        )

    def __str__(self) -> str:
        return f"{self.plan_id} {self.base_per_hour} {self.currency}/h"

    def clean(self) -> None:
        """Checks that a new price begins in the future, so that past hours keep their price.

        The first price of a plan in a currency may begin in the past, because nothing was charged before it.
        """
        super().clean()
        self.currency = (self.currency or "").strip().upper()
        if not re.fullmatch(CURRENCY_PATTERN, self.currency):
            raise ValidationError({"currency": _("A currency is three letters, such as EUR.")})
        if minor_digits(self.currency) > DIGITS_STORED_MAX:
            text_values = {"currency": self.currency}
            text = _("Amounts in %(currency)s have more than three decimals, which is not offered.") % text_values
            raise ValidationError({"currency": text})
        for name in ("base_per_hour", "per_mb_s_hour", "per_gb_hour"):
            validate_price(name, getattr(self, name))
        now = timezone.now()
        begun = Price.objects.filter(plan_id=self.plan_id, currency=self.currency, effective_from__lte=now)
        if self.effective_from and self.effective_from <= now and begun.exclude(pk=self.pk).exists():
            raise ValidationError(
                {"effective_from": _("Hours that have passed are charged at the price they had. Enter a later time.")}
            )

    def as_price_list(self) -> PriceList:
        """Returns the price list with measured meters. The caller prefetches `components`."""
        return self._price_list(component.as_component() for component in self.components.all())

    def size_price_list(self) -> PriceList:
        """Returns the price list without measured meters, which suffices for a quote."""
        return self._price_list(())

    def _price_list(self, measured: Iterable[Component]) -> PriceList:
        def bought(meter: Meter, unit_price: Decimal, included: int) -> Component:
            tiers = (Tier(up_to=None, unit_price=unit_price),)
            return Component(meter=meter, scheme=Scheme.GRADUATED, tiers=tiers, included=Decimal(included))

        return PriceList(
            plan=self.plan_id,
            currency=self.currency,
            effective_from=self.effective_from,
            components=(
                bought(Meter.INSTANCE, self.base_per_hour, 0),
                bought(Meter.BANDWIDTH, self.per_mb_s_hour, self.plan.bandwidth_mb_s),
                bought(Meter.STORAGE, self.per_gb_hour, self.plan.storage_gb),
                *measured,
            ),
        )


class PriceComponent(models.Model):
    """Price of a measured meter; without it the meter is free. Never edited once the price is in force."""

    MEASURED = tuple((str(meter), str(meter)) for meter in Meter if meter not in BOOKED)

    price = models.ForeignKey(Price, on_delete=models.PROTECT, related_name="components", verbose_name=_("price"))
    meter = models.CharField(_("meter"), max_length=16, choices=MEASURED)
    scheme = models.CharField(
        _("scheme"),
        max_length=12,
        choices=[(str(scheme), str(scheme)) for scheme in Scheme],
        default=Scheme.GRADUATED.value,
    )
    tiers = models.JSONField(
        _("tiers"),
        help_text=_("JSON; how tiers are written is said in docs/how-to/close-a-month.md."),
    )
    included = models.DecimalField(_("included"), max_digits=20, decimal_places=6, default=0)
    commit = models.DecimalField(_("committed"), max_digits=20, decimal_places=6, default=0)
    overage_price = models.DecimalField(_("price of overage"), max_digits=12, decimal_places=6, null=True, blank=True)

    class Meta:
        ordering = ("price", "meter")
        verbose_name = _("component of a price")
        verbose_name_plural = _("components of prices")
        constraints = (
            models.UniqueConstraint(fields=("price", "meter"), name="price_component_once"),
            models.CheckConstraint(condition=models.Q(included__gte=0, commit__gte=0), name="price_component_amounts"),
        )

    def __str__(self) -> str:
        return f"{self.meter} {self.scheme}"

    def clean(self) -> None:
        super().clean()
        try:
            tiers = self.as_tiers()
        except ValueError as wrong:
            raise ValidationError({"tiers": str(wrong)}) from None
        if any(price != price.quantize(UNIT_PRICE_STEP) for tier in tiers for price in (tier.unit_price, tier.flat)):
            raise ValidationError({"tiers": _("A price has at most 8 decimals.")})
        validate_price("overage_price", self.overage_price)
        if self.price_id and self.price.effective_from <= timezone.now():
            raise ValidationError(_("Hours that have passed are charged at the price they had. Enter a later time."))

    def as_tiers(self) -> list[Tier]:
        return parse_tiers(self.tiers)

    def as_component(self) -> Component:
        return Component(
            meter=Meter(self.meter),
            scheme=Scheme(self.scheme),
            tiers=self.as_tiers(),
            included=self.included,
            commit=self.commit,
            overage_price=self.overage_price,
        )
