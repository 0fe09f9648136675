"""Whether an invoice can be worked out again: from what was rated, and from the usage rows as they are."""

from __future__ import annotations

from dataclasses import dataclass
from decimal import Decimal

from billing.invoices.adjustments import differences
from billing.invoices.snapshot import from_json
from billing.models import Invoice, InvoiceLine


@dataclass(frozen=True, slots=True, kw_only=True)
class Difference:
    """`source` is `inputs` or `usage`; `invoiced` with what later invoices corrected, `recomputed` what is due."""

    source: str
    instance_id: str
    plan: str
    meter: str
    invoiced: Decimal
    recomputed: Decimal


@dataclass(frozen=True, slots=True, kw_only=True)
class Recomputation:
    """Equal to the cent where there are no differences. What differs from usage is a line of the next invoice."""

    lines: int
    subtotal: Decimal
    differences: list[Difference]

    @property
    def is_equal(self) -> bool:
        return not self.differences


def recompute(invoice: Invoice) -> Recomputation:
    """A credit note is a decision, not a computation: its lines stand for themselves."""
    own = list(InvoiceLine.objects.filter(invoice=invoice).order_by("position"))
    found: list[Difference] = []
    if invoice.inputs:
        bill = from_json(invoice.inputs).rated()
        rated = [(line.instance_id, line.plan, line.meter, line.amount) for line in bill.lines]
        kept = [(line.instance_id, line.plan, line.meter, line.amount) for line in own if line.kind != "adjustment"]
        for number in range(max(len(rated), len(kept))):
            one = rated[number] if number < len(rated) else None
            other = kept[number] if number < len(kept) else None
            if one != other:
                named = one or other
                assert named is not None
                found.append(
                    Difference(
                        source="inputs", instance_id=named[0], plan=named[1], meter=named[2],
                        invoiced=other[3] if other else Decimal(0), recomputed=one[3] if one else Decimal(0),
                    )
                )  # fmt: skip
        found += [
            Difference(
                source="usage", instance_id=each.line.instance_id, plan=each.line.plan, meter=each.line.meter,
                invoiced=Decimal(0), recomputed=each.line.amount,
            )
            for each in differences(invoice)
        ]  # fmt: skip
    return Recomputation(lines=len(own), subtotal=sum((line.amount for line in own), Decimal(0)), differences=found)
