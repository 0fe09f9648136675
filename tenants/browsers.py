"""Browser and operating system from a User-Agent header, for people: "Firefox on Linux". Pure.

The header is provided by the browser: it helps to recognise one's own sessions, but proves nothing.
"""

from __future__ import annotations

UNKNOWN = ""

# The first match wins: most browsers claim to be Safari, and Edge and Opera claim to be Chrome.
_BROWSERS = (
    ("Edg", "Edge"),
    ("OPR/", "Opera"),
    ("Vivaldi/", "Vivaldi"),
    ("SamsungBrowser/", "Samsung Internet"),
    ("Firefox/", "Firefox"),
    ("FxiOS/", "Firefox"),
    ("CriOS/", "Chrome"),
    ("HeadlessChrome/", "Chrome"),
    ("Chrome/", "Chrome"),
    ("Safari/", "Safari"),
    ("curl/", "curl"),
    ("python-requests/", "Python"),
)
_SYSTEMS = (
    ("iPhone", "iPhone"),
    ("iPad", "iPad"),
    ("Android", "Android"),
    ("CrOS", "ChromeOS"),
    ("Windows", "Windows"),
    ("Mac OS X", "macOS"),
    ("Linux", "Linux"),
)


def browser_of(user_agent: str) -> str:
    """Returns the browser's name, or UNKNOWN."""
    return _first_match(_BROWSERS, user_agent)


def system_of(user_agent: str) -> str:
    """Returns the operating system's name, or UNKNOWN."""
    return _first_match(_SYSTEMS, user_agent)


def kind_of(user_agent: str) -> str:
    """Returns both names joined, which identify a browser regardless of its version."""
    return "/".join(word for word in (browser_of(user_agent), system_of(user_agent)) if word)


def _first_match(names_by_marker: tuple[tuple[str, str], ...], user_agent: str) -> str:
    return next((name for marker, name in names_by_marker if marker in user_agent), UNKNOWN)
