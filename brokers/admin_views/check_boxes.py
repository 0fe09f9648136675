"""Form widget with check boxes for hundreds of choices."""

from __future__ import annotations

from typing import Any

from django.forms import CheckboxSelectMultiple
from django.forms.utils import flatatt
from django.utils.html import format_html, format_html_join
from django.utils.safestring import SafeString


class ManyCheckBoxes(CheckboxSelectMultiple):
    """Check boxes with Django's markup, built without templates: Django would render three for each box."""

    def render(self, name: str, value: Any, attrs: dict[str, Any] | None = None, renderer: Any = None) -> SafeString:
        widget = self.get_context(name, value, attrs)["widget"]
        options = [option for _, group, _ in widget["optgroups"] for option in group]
        boxes = format_html_join(
            "",
            '<div><label for="{}"><input type="checkbox" name="{}" value="{}"{}> {}</label></div>',
            (
                (
                    option["attrs"].get("id", ""),
                    option["name"],
                    option["value"],
                    flatatt(option["attrs"]),
                    option["label"],
                )
                for option in options
            ),
        )
        return format_html('<div id="{}">{}</div>', widget["attrs"].get("id", ""), boxes)
