"""What a User-Agent header says in two words, for people: "Firefox on Linux". Pure.

It is what the browser says of itself: enough to recognise one's own sessions, and no proof of anything.
"""

from __future__ import annotations

UNKNOWN = ""

# The first that is found wins: most say that they are Safari, and Edge and Opera that they are Chrome.
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
    """The browser's name, or UNKNOWN."""
    return _first(_BROWSERS, user_agent)


def system_of(user_agent: str) -> str:
    """The operating system's name, or UNKNOWN."""
    return _first(_SYSTEMS, user_agent)


def kind_of(user_agent: str) -> str:
    """Both in one word: what makes a browser the same as the one before. Versions change by themselves."""
    return "/".join(word for word in (browser_of(user_agent), system_of(user_agent)) if word)


def _first(known: tuple[tuple[str, str], ...], user_agent: str) -> str:
    return next((name for sign, name in known if sign in user_agent), UNKNOWN)
