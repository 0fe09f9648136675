"""Short descriptions of browsers by their User-Agent."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tenants.browsers import browser_of, kind_of, system_of

CHROME = "Mozilla/5.0 (X11; Linux x86_64) AppleWebKit/537.36 (KHTML, like Gecko) Chrome/129.0.0.0 Safari/537.36"
KNOWN = {
    CHROME: ("Chrome", "Linux"),
    CHROME.replace("X11; Linux x86_64", "Windows NT 10.0; Win64; x64") + " Edg/129.0.0.0": ("Edge", "Windows"),
    "Mozilla/5.0 (Macintosh; Intel Mac OS X 14_5) AppleWebKit/605 (KHTML) Version/17.5 Safari/605": ("Safari", "macOS"),
    "Mozilla/5.0 (iPhone; CPU iPhone OS 17_5 like Mac OS X) AppleWebKit/605 Safari/604": ("Safari", "iPhone"),
    "Mozilla/5.0 (Android 14; Mobile; rv:130.0) Gecko/130.0 Firefox/130.0": ("Firefox", "Android"),
    "curl/8.9.1": ("curl", ""),
    "": ("", ""),
}


@pytest.mark.parametrize("user_agent", KNOWN)
def test_a_browser_and_its_system_are_recognised(user_agent: str) -> None:
    assert (browser_of(user_agent), system_of(user_agent)) == KNOWN[user_agent]


def test_another_version_is_the_same_kind() -> None:
    assert kind_of(CHROME) == kind_of(CHROME.replace("129", "130")) == "Chrome/Linux"


@given(st.text(max_size=300))
def test_the_kind_of_any_browser_is_short(user_agent: str) -> None:
    assert len(kind_of(user_agent)) <= 64, "the column of the database"
