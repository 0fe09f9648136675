"""Fonts of invoices and the choice of a font for each word.

Words are ordered by Unicode's bidirectional algorithm, for names: right-to-left words are reordered, with numbers and
Latin words between them. Noto and Heebo come from PyPI under the SIL Open Font License; the glyphs used are embedded in
the file and shaped by HarfBuzz. Chinese and Hangul use Adobe's fonts, which PDF viewers provide.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from importlib.resources import files
from itertools import groupby
from typing import Final, NamedTuple
from unicodedata import bidirectional, category, name

from reportlab.pdfbase import pdfmetrics
from reportlab.pdfbase.cidfonts import UnicodeCIDFont
from reportlab.pdfbase.ttfonts import TTFont

CHINESE: Final = "STSong-Light"
HANGUL: Final = "HYSMyeongJo-Medium"
LATIN: Final = "Noto Sans"
# Replaces characters that no font has, such as emoji.
REPLACEMENT: Final = "\ufffd"
RIGHT_TO_LEFT: Final = ("R", "AL")
# Joiners control how Arabic and Indic letters connect; all other formatting characters are removed.
JOINERS: Final = "\u200c\u200d"


def _embedded(font: str, package: str, file: str) -> TTFont:
    made = TTFont(font, str(files(package) / "files" / file), shapable=True)
    pdfmetrics.registerFont(made)
    return made


EMBEDDED: Final = (
    _embedded(LATIN, "fontpkg_noto_sans", "NotoSans[wdth,wght].ttf"),
    _embedded("Noto Sans Arabic", "fontpkg_noto_sans_arabic", "NotoSansArabic[wdth,wght].ttf"),
    _embedded("Heebo", "fontpkg_heebo", "Heebo[wght].ttf"),
    _embedded("Noto Sans Thai", "fontpkg_noto_sans_thai", "NotoSansThai[wdth,wght].ttf"),
)
for _name in (CHINESE, HANGUL):
    pdfmetrics.registerFont(UnicodeCIDFont(_name))


class Run(NamedTuple):
    """Letters in one font, without spaces."""

    font: str
    text: str


def is_plain(text: str) -> bool:
    """True for letters of Windows-1252 and Chinese, which need neither shaping nor an embedded font."""
    return all(_is_in(letter, "cp1252") or _is_chinese(letter) for letter in text)


def lines_of(text: str, width: float, measured: Callable[[Run], float]) -> Iterator[list[Run]]:
    """Yields lines of runs in visual order from left to right, each filled with words up to the width."""
    seen = "".join(letter for letter in text if letter in JOINERS or category(letter) not in ("Cc", "Cf"))
    words = [list(_runs(word)) for word in seen.split()]
    line: list[list[Run]] = []
    room = width
    for word in words:
        needed = sum(measured(run) for run in word) + measured(Run(LATIN, " "))
        if line and needed > room:
            yield [run for each in _as_seen(line, words) for run in each]
            line, room = [], width
        line.append(word)
        room -= needed
    if line:
        yield [run for each in _as_seen(line, words) for run in each]


def _runs(word: str) -> Iterator[Run]:
    """Yields parts of one direction, each in a single font if one font covers it. A part is shaped as a whole."""
    for part in _parts_by_direction(word):
        whole = next((font for font in EMBEDDED if all(_has(font, letter) for letter in part)), None)
        if whole is not None:
            yield Run(whole.fontName, part)
            continue
        for font_name, letters in groupby(part, key=_font_of):
            of_font = "".join(letters)
            yield Run(font_name, of_font) if font_name else Run(LATIN, REPLACEMENT * len(of_font))


def _parts_by_direction(word: str) -> Iterator[str]:
    """Splits a word by direction; digits and letters without a direction belong to the part before them."""
    part, direction = "", ""
    for letter in word:
        of = bidirectional(letter)
        found = "R" if of in RIGHT_TO_LEFT else of if of == "L" else ""
        if found and direction and found != direction:
            yield part
            part = ""
        direction = found or direction
        part += letter
    yield part


def _as_seen(line: list[list[Run]], words: list[list[Run]]) -> Iterable[list[Run]]:
    """Yields the words of a line in visual order; words without a direction take that of their neighbours."""
    is_rtl = [_is_rtl(word) for word in line]
    base = next((each for each in map(_is_rtl, words) if each is not None), False)
    known = [base if each is None else each for each in is_rtl]
    for number, each in enumerate(is_rtl):
        # A neutral word between two words of the same direction takes that direction.
        if each is None:
            before = next((found for found in reversed(is_rtl[:number]) if found is not None), base)
            after = next((found for found in is_rtl[number + 1 :] if found is not None), base)
            known[number] = before if before == after else base
    of_one = groupby(zip(known, line, strict=True), lambda each: each[0])
    groups = [(rtl, [word for _, word in group]) for rtl, group in of_one]
    if base:
        groups.reverse()
    for rtl, group in groups:
        yield from (([*reversed(word)] for word in reversed(group)) if rtl else group)


def _is_rtl(word: Iterable[Run]) -> bool | None:
    """True if the first letter with a direction runs from right to left; None without such a letter."""
    for run in word:
        for letter in run.text:
            if bidirectional(letter) in RIGHT_TO_LEFT:
                return True
            if bidirectional(letter) == "L":
                return False
    return None


def _font_of(letter: str) -> str:
    """Returns the name of a font that has the letter; empty if none has it."""
    for font in EMBEDDED:
        if _has(font, letter):
            return str(font.fontName)
    if name(letter, "").startswith("HANGUL"):
        return HANGUL
    return CHINESE if _is_chinese(letter) else ""


def _has(font: TTFont, letter: str) -> bool:
    return ord(letter) in font.face.charToGlyph


def _is_chinese(letter: str) -> bool:
    return _is_in(letter, "gbk")


def _is_in(letter: str, charset: str) -> bool:
    try:
        letter.encode(charset)
    except UnicodeEncodeError:
        return False
    return True
