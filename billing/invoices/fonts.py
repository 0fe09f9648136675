"""Choice of fonts for the texts of an invoice, line breaking, and visual order of right-to-left words.

Words are ordered by the part of Unicode's bidirectional algorithm that names need: right-to-left words are reordered,
with numbers and Latin words between them. The used glyphs are embedded in the PDF and shaped by HarfBuzz.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from itertools import groupby
from typing import Final, NamedTuple
from unicodedata import bidirectional, category, normalize

from billing.invoices import faces
from billing.invoices.faces import Face

# Replaces characters that no font has.
REPLACEMENT: Final = "\ufffd"
RIGHT_TO_LEFT: Final = ("R", "AL")
# Joiners control how Arabic and Indic letters connect; all other formatting characters are removed.
JOINERS: Final = "\u200c\u200d"
# Characters that select one of several forms of a symbol. They are removed, because the fonts have only one form.
VARIATION_SELECTORS: Final = range(0xFE00, 0xFE10)

# Vowels of Thai and Lao that belong to the letter before them, though Unicode calls them letters.
ATTACHED: Final = "\u0e33\u0eb3"

WidthFunction = Callable[["Run"], float]


class Run(NamedTuple):
    """Letters in one font, without spaces."""

    font: str
    text: str


def cleaned(text: str) -> str:
    """Returns the text in Unicode's composed form (NFC), without control and formatting characters except joiners."""
    return "".join(letter for letter in normalize("NFC", text) if not _is_control(letter))


def _is_control(letter: str) -> bool:
    if letter.isspace() or letter in JOINERS:
        return False
    return ord(letter) in VARIATION_SELECTORS or category(letter) in ("Cc", "Cf")


def is_plain(text: str) -> bool:
    """True if all letters are of Windows-1252 or East Asian, which need no shaping and allow a line break anywhere."""
    return all(is_western(letter) or faces.is_east_asian(letter) for letter in text)


def is_western(letter: str) -> bool:
    """True for letters of Windows-1252, which the standard fonts of PDFs have."""
    try:
        letter.encode("cp1252")
    except UnicodeEncodeError:
        return False
    return True


def plain_runs(text: str) -> Iterator[Run]:
    """Yields the runs of an `is_plain` text in order; the font of letters of Windows-1252 is empty."""
    preferred = faces.preferred_east_asian_face(text)
    for font, letters in groupby(text, key=lambda letter: "" if is_western(letter) else _font_of(letter, preferred)):
        yield _run_or_replacement(font, "".join(letters))


def has_missing_glyphs(text: str) -> bool:
    """True if a character of the text is shown as `REPLACEMENT`."""
    return any(
        not (is_western(letter) or letter.isspace() or letter in JOINERS) and faces.face_of(letter) is None
        for letter in cleaned(text)
    )


def text_lines(text: str, width: float, width_of: WidthFunction) -> Iterator[list[list[Run]]]:
    """Yields lines, each a list of words in visual order from left to right; a word is a list of runs.

    A line has as many words as fit into `width`, measured by `width_of`. A word that is wider than a line is broken.
    """
    displayed = cleaned(text)
    preferred = faces.preferred_east_asian_face(displayed)
    words = [part for word in displayed.split() for part in _break_word(list(_runs(word, preferred)), width, width_of)]
    line: list[list[Run]] = []
    available = width
    for word in words:
        needed_width = sum(width_of(run) for run in word) + width_of(Run(faces.LATIN.name, " "))
        if line and needed_width > available:
            yield list(_in_visual_order(line, words))
            line, available = [], width
        line.append(word)
        available -= needed_width
    if line:
        yield list(_in_visual_order(line, words))


def _break_word(word: list[Run], width: float, width_of: WidthFunction) -> Iterator[list[Run]]:
    """Yields parts of the word that are not wider than a line, broken between letters and not before their marks."""
    if sum(width_of(run) for run in word) <= width:
        yield word
        return
    part: list[Run] = []
    available = width
    for run in word:
        for cluster in _clusters(run.text):
            needed_width = width_of(Run(run.font, cluster))
            if part and needed_width > available:
                yield part
                part, available = [], width
            if part and part[-1].font == run.font:
                part[-1] = Run(run.font, part[-1].text + cluster)
            else:
                part.append(Run(run.font, cluster))
            available -= needed_width
    yield part


def _clusters(text: str) -> Iterator[str]:
    """Yields letters with the marks and joined letters that follow them."""
    cluster = ""
    for letter in text:
        if cluster and not (category(letter)[0] == "M" or letter in JOINERS + ATTACHED or cluster[-1] in JOINERS):
            yield cluster
            cluster = ""
        cluster += letter
    yield cluster


def _runs(word: str, preferred: Face) -> Iterator[Run]:
    """Yields parts of one direction, each in a single font if one font covers it. A part is shaped as a whole."""
    for part in _parts_by_direction(word):
        visible = [letter for letter in part if letter not in JOINERS]
        candidates = [face for face in (faces.face_of(letter, preferred) for letter in visible) if face is not None]
        covering = next(
            (face for face in dict.fromkeys(candidates) if all(faces.has_glyph(face, letter) for letter in visible)),
            None,
        )
        if covering is not None:
            yield Run(covering.name, part)
            continue
        for font, letters in groupby(part, key=lambda letter: _font_of(letter, preferred)):
            yield _run_or_replacement(font, "".join(letters))


def _font_of(letter: str, preferred: Face) -> str | None:
    """Returns the name of a font that has the letter, or None."""
    face = faces.face_of(letter, preferred)
    return face.name if face else None


def _run_or_replacement(font: str | None, text: str) -> Run:
    """Returns the letters in their font, or as many replacements if no font has them."""
    return Run(faces.LATIN.name, REPLACEMENT * len(text)) if font is None else Run(font, text)


def _parts_by_direction(word: str) -> Iterator[str]:
    """Splits a word by direction; digits and letters without a direction belong to the part before them."""
    part, direction = "", ""
    for letter in word:
        kind = bidirectional(letter)
        letter_direction = "R" if kind in RIGHT_TO_LEFT else kind if kind == "L" else ""
        if letter_direction and direction and letter_direction != direction:
            yield part
            part = ""
        direction = letter_direction or direction
        part += letter
    yield part


def _in_visual_order(line: list[list[Run]], words: list[list[Run]]) -> Iterable[list[Run]]:
    """Yields the words of a line in visual order; words without a direction take that of their neighbours."""
    word_directions = [_is_rtl(word) for word in line]
    is_text_rtl = next((is_word_rtl for is_word_rtl in map(_is_rtl, words) if is_word_rtl is not None), False)
    resolved_directions = [is_text_rtl if is_word_rtl is None else is_word_rtl for is_word_rtl in word_directions]
    for number, is_word_rtl in enumerate(word_directions):
        # A neutral word between two words of the same direction takes that direction.
        if is_word_rtl is None:
            previous_direction = next(
                (direction for direction in reversed(word_directions[:number]) if direction is not None), is_text_rtl
            )
            next_direction = next(
                (direction for direction in word_directions[number + 1 :] if direction is not None), is_text_rtl
            )
            resolved_directions[number] = previous_direction if previous_direction == next_direction else is_text_rtl
    same_direction = groupby(zip(resolved_directions, line, strict=True), lambda entry: entry[0])
    groups = [(rtl_group, [word for _, word in group]) for rtl_group, group in same_direction]
    if is_text_rtl:
        groups.reverse()
    for rtl_group, group in groups:
        yield from (([*reversed(word)] for word in reversed(group)) if rtl_group else group)


def _is_rtl(word: Iterable[Run]) -> bool | None:
    """True if the first letter with a direction runs from right to left; None without such a letter."""
    for run in word:
        for letter in run.text:
            if bidirectional(letter) in RIGHT_TO_LEFT:
                return True
            if bidirectional(letter) == "L":
                return False
    return None
