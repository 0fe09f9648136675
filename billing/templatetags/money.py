"""Template tags of the operator pages about money: outcomes of checks."""

from __future__ import annotations

from django import template
from django.utils.safestring import SafeString
from django.utils.translation import gettext as _

from billing.reporting.month_checks import Check, Outcome
from brokers.templatetags.fleet import console_pill

register = template.Library()


@register.simple_tag
def check_pill(check: Check) -> SafeString:
    """Renders an outcome as symbol and word together, so that it does not depend on colour."""
    pill_state, word = {
        Outcome.PASSED: ("running", _("Passed")),
        Outcome.FAILED: ("failed", _("Failed")),
        Outcome.UNKNOWN: ("suspended", _("Look")),
    }[check.outcome]
    return console_pill(pill_state, word)
