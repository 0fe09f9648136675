"""Font files of invoices, and the choice of a font by the script of a letter.

The files are Noto Sans and Heebo from PyPI packages, under the SIL Open Font License. A file is loaded when a text
first needs it; its weight is fixed at regular, because PDFs cannot have variable fonts.
"""

from __future__ import annotations

from importlib.resources import files
from io import BytesIO
from threading import Lock
from typing import Final, NamedTuple
from unicodedata import category, east_asian_width, is_normalized, name

import uharfbuzz
from reportlab.pdfbase import pdfmetrics
from reportlab.pdfbase.ttfonts import TTFont

REGULAR_WEIGHT: Final = 400


class Face(NamedTuple):
    """Name of a font in PDFs, and its file in a package."""

    name: str
    package: str
    file: str


def _fontpkg_face(script: str, package: str) -> Face:
    """Returns a font that also has Latin punctuation and digits, which names of companies mix with other scripts."""
    return Face(f"Noto Sans {script}".rstrip(), package, f"files/NotoSans{script}[wdth,wght].ttf")


def _manimgx_face(script: str) -> Face:
    return Face(f"Noto Sans {script}", "manimgx_fonts", f"NotoSans{script}[wght].ttf")


def _east_asian_face(region: str) -> Face:
    folder = f"fonts/ofl/notosans{region.lower()}"
    return Face(f"Noto Sans {region}", "justmytype_intl_cjk", f"{folder}/NotoSans{region}[wght].ttf")


LATIN: Final = _fontpkg_face("", "fontpkg_noto_sans")
SIMPLIFIED, TRADITIONAL, JAPANESE, KOREAN = map(_east_asian_face, ("SC", "TC", "JP", "KR"))
EMOJI: Final = Face("Noto Emoji", "manimgx_fonts", "NotoEmoji[wght].ttf")
SYMBOLS: Final = _manimgx_face("Symbols")
# Fonts by the first word of the Unicode name of a letter that `LATIN` lacks: it also has Greek, Cyrillic, and
# Devanagari except for Vedic letters.
SCRIPTS: Final = {
    "ARABIC": _fontpkg_face("Arabic", "fontpkg_noto_sans_arabic"),
    "HEBREW": Face("Heebo", "fontpkg_heebo", "files/Heebo[wght].ttf"),
    "THAI": _fontpkg_face("Thai", "fontpkg_noto_sans_thai"),
} | {
    script.upper(): _manimgx_face(script)
    for script in (
        "Armenian", "Bengali", "Devanagari", "Ethiopic", "Georgian", "Gujarati", "Gurmukhi", "Kannada", "Khmer", "Lao",
        "Malayalam", "Myanmar", "Oriya", "Sinhala", "Tamil", "Telugu",
    )
}  # fmt: skip
# Radicals: parts of Chinese characters, some of which look like a whole character.
RADICALS: Final = range(0x2E80, 0x2FE0)
KANA: Final = ("HIRAGANA", "KATAKANA", "KATAKANA-HIRAGANA")
HANGUL: Final = "HANGUL"
# East Asian fonts, in the order in which they are searched for a letter that the preferred font lacks.
EAST_ASIAN: Final = (SIMPLIFIED, TRADITIONAL, JAPANESE, KOREAN)

_loaded: dict[Face, TTFont] = {}
_lock = Lock()


def load(face: Face) -> TTFont:
    """Returns the font, registered for PDFs under its name."""
    if face not in _loaded:
        with _lock:
            if face not in _loaded:
                font = TTFont(face.name, BytesIO(_with_regular_weight(face)), shapable=True)
                _prefer_letters(font)
                pdfmetrics.registerFont(font)
                _loaded[face] = font
    return _loaded[face]


def _with_regular_weight(face: Face) -> bytes:
    """Returns the font file with its weight fixed."""
    path = files(face.package).joinpath(*face.file.split("/"))
    variable = uharfbuzz.Face(uharfbuzz.Blob.from_file_path(str(path)))
    subset = uharfbuzz.SubsetInput()
    subset.keep_everything()
    subset.flags |= uharfbuzz.SubsetFlags.NO_HINTING
    subset.pin_all_axes_to_default(variable)
    subset.pin_axis_location(variable, "wght", REGULAR_WEIGHT)
    data: bytes = subset.subset(variable).blob.data
    return data


def _prefer_letters(font: TTFont) -> None:
    """Sorts the characters of each glyph, so that letters precede radicals and compatibility characters.

    A PDF maps a glyph to the first of its characters, when a viewer copies text or searches for it.
    """
    for letters in font.face.glyphToChar.values():
        if len(letters) > 1:
            letters.sort(key=lambda letter: (letter in RADICALS or not is_normalized("NFKC", chr(letter)), letter))


def has_glyph(face: Face, letter: str) -> bool:
    """True if the font has a glyph of the letter."""
    return ord(letter) in load(face).face.charToGlyph


def face_of(letter: str, preferred: Face = SIMPLIFIED) -> Face | None:
    """Returns a font that has the letter, or None. For East Asian letters, the `preferred` font is tried first.

    Only fonts of the letter's script are loaded.
    """
    return next((face for face in _candidates(letter, preferred) if has_glyph(face, letter)), None)


def is_east_asian(letter: str) -> bool:
    """True for letters of Chinese, Japanese and Korean, their punctuation and their wide forms of other letters."""
    return east_asian_width(letter) in "WFH" and category(letter)[0] != "S" and not _is_conjoining(letter)


def preferred_east_asian_face(text: str) -> Face:
    """Returns the font for the Chinese characters of a text: Japanese if it has kana, Korean if it has Hangul,
    otherwise simplified Chinese.
    """
    scripts = {name(letter, "").split(" ")[0] for letter in text if is_east_asian(letter)}
    if scripts & {*KANA}:
        return JAPANESE
    return KOREAN if HANGUL in scripts else SIMPLIFIED


def _candidates(letter: str, preferred: Face) -> tuple[Face, ...]:
    if has_glyph(LATIN, letter):
        return (LATIN,)
    if is_east_asian(letter):
        return preferred, *(face for face in EAST_ASIAN if face is not preferred)
    script = name(letter, "").split(" ")[0]
    if script == HANGUL:
        return (KOREAN,)
    if script in SCRIPTS:
        return (SCRIPTS[script],)
    # For letters of a script without a font, none of the large fonts is loaded.
    return (SYMBOLS,) if category(letter)[0] in "LMC" else (EMOJI, SYMBOLS, preferred)


def _is_conjoining(letter: str) -> bool:
    """True for parts of Hangul syllables, which only shaping combines to syllables."""
    return "\u1100" <= letter <= "\u11ff" or "\ua960" <= letter <= "\ua97f" or "\ud7b0" <= letter <= "\ud7ff"
