"""Select of many choices: the same choices as Django's, without a template for each."""

from __future__ import annotations

import re

from django import forms
from hypothesis import given
from hypothesis import strategies as st

from tenants.forms import LongSelect, PreferencesForm

TEXTS = st.text(st.characters(exclude_categories=["Cs", "Cc"]), min_size=1, max_size=8)
OPTION = re.compile(r'<option value="([^"]*)"( selected)?>\s*([^<]*?)\s*</option>')


@given(st.lists(st.tuples(TEXTS, TEXTS), min_size=1, max_size=6, unique_by=lambda choice: choice[0]), st.integers(0, 5))
def test_a_long_select_has_the_options_of_a_select(choices: list[tuple[str, str]], chosen: int) -> None:
    value = choices[chosen % len(choices)][0]
    ours = LongSelect(choices=choices).render("zone", value, {"id": "id_zone"})
    theirs = forms.Select(choices=choices).render("zone", value, {"id": "id_zone"})
    assert [(key, bool(mark), label.strip()) for key, mark, label in OPTION.findall(ours)] == [
        (key, bool(mark), label.strip()) for key, mark, label in OPTION.findall(theirs)
    ]
    assert 'name="zone"' in ours
    assert 'id="id_zone"' in ours


def test_the_time_zone_of_a_person_is_chosen() -> None:
    html = str(PreferencesForm(initial={"time_zone": "Europe/Berlin"})["time_zone"])
    assert [key for key, mark, _ in OPTION.findall(html) if mark] == ["Europe/Berlin"]
