"""Text shaping (`billing.invoices.fonts`): a name in any script is shown as entered, in reading order."""

from __future__ import annotations

from contextlib import suppress
from io import BytesIO
from unicodedata import category, normalize

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pypdf import PdfReader
from reportlab.platypus import SimpleDocTemplate

from billing.invoices import faces, fonts, pdf
from tests.testkit import depth


def seen(text: str, width: float = 1_000) -> list[str]:
    """Returns the runs of each line from left to right, with their letters in the order of entry."""
    lines = fonts.text_lines(text, width, lambda run: len(run.text) * 1.0)
    return [" ".join("".join(run.text for run in word) for word in line) for line in lines]


@pytest.mark.parametrize(
    ("text", "order"),
    [
        ("Zażółć gęślą", ["Zażółć gęślą"]),
        ("שלום לכם חברים", ["חברים לכם שלום"]),
        ("Acme שלום לכם Ltd", ["Acme לכם שלום Ltd"]),
        ("שלום Acme Ltd לכם", ["לכם Acme Ltd שלום"]),
        ("שלום 1998 לכם", ["לכם 1998 שלום"]),
        ("שלום & לכם", ["לכם & שלום"]),
        ("Acmeשלום", ["Acmeשלום"]),
        ("a\u200bb \u202ec", ["ab c"]),
        ("", []),
    ],
)
def test_words_stand_in_the_order_in_which_they_are_read(text: str, order: list[str]) -> None:
    assert seen(text) == order


def test_a_line_from_right_to_left_that_is_too_long_goes_on_below_it() -> None:
    assert seen("אאא בבב גגג", 9) == ["בבב אאא", "גגג"]


@pytest.mark.parametrize(
    ("text", "font"),
    [
        ("gęślą", "Noto Sans"), ("ế", "Noto Sans"), ("Ωμέγα", "Noto Sans"), ("Привет", "Noto Sans"),
        ("شركة", "Noto Sans Arabic"), ('בע"מ', "Heebo"), ("น้ำใส", "Noto Sans Thai"),
        ("क्षत्रिय", "Noto Sans"), ("বাংলা", "Noto Sans Bengali"), ("தமிழ்", "Noto Sans Tamil"),
        ("ქართული", "Noto Sans Georgian"), ("հայերեն", "Noto Sans Armenian"), ("አማርኛ", "Noto Sans Ethiopic"),
        ("한국", "Noto Sans KR"), ("韓国のカ", "Noto Sans JP"), ("北京", "Noto Sans SC"), ("臺灣", "Noto Sans SC"),
        ("😀", "Noto Emoji"), ("★", "Noto Sans SC"), ("☎", "Noto Emoji"), ("👩\u200d⚕\ufe0f", "Noto Emoji"),
        ("\u1100\u1161\u11a8", "Noto Sans KR"),
    ],
)  # fmt: skip
def test_each_word_has_a_font_that_has_all_of_it(text: str, font: str) -> None:
    ((word,),) = fonts.text_lines(text, 1_000, lambda run: 1.0)
    assert [(run.font, run.text) for run in word] == [(font, fonts.cleaned(text))]


def test_syllables_of_separate_parts_are_composed() -> None:
    assert fonts.cleaned(normalize("NFD", "한국 ế")) == "한국 ế"


@pytest.mark.parametrize(
    ("charset", "lead", "trail"),
    [
        ("gb2312", range(0xB0, 0xF8), range(0xA1, 0xFF)), ("euc_kr", range(0xB0, 0xC9), range(0xA1, 0xFF)),
        ("shift_jis", range(0x88, 0xA0), range(0x40, 0xFD)), ("big5", range(0xA4, 0xC7), range(0x40, 0xFF)),
    ],
)  # fmt: skip
def test_common_letters_of_east_asia_all_have_a_font(charset: str, lead: range, trail: range) -> None:
    """Simplified and traditional Chinese, Japanese and Hangul, as their national character sets list them."""
    listed = {bytes([first, second]).decode(charset, "ignore") for first in lead for second in trail}
    letters = [letter for text in listed for letter in text if category(letter) == "Lo"]
    assert len(letters) > 2_300
    assert [letter for letter in letters if faces.face_of(letter) is None] == []


def test_a_character_without_a_font_is_replaced_visibly() -> None:
    assert seen("Acme \U0001d800 GmbH") == ["Acme \ufffd GmbH"]
    assert faces.has_glyph(faces.LATIN, fonts.REPLACEMENT)
    assert fonts.has_missing_glyphs("Acme \U0001d800 GmbH")
    assert not fonts.has_missing_glyphs("Acme 北京 한국 😀\ufe0f\n\u200b שלום")


@pytest.mark.parametrize(
    ("text", "lines"),
    [("abcdefgh ij", ["abcd", "efgh", "ij"]), ("น้ำน้ำน้ำ", ["น้ำ", "น้ำ", "น้ำ"]), ("漢字😀漢字", ["漢字😀漢", "字"])],
)
def test_a_word_that_is_wider_than_a_line_is_broken_between_letters(text: str, lines: list[str]) -> None:
    assert seen(text, 4) == lines


def written(text: str) -> bytes:
    buffer = BytesIO()
    SimpleDocTemplate(buffer, invariant=1).build([pdf._text(text)])
    return buffer.getvalue()


@pytest.mark.parametrize(
    ("text", "at_least"),
    [("Zażółć gęślą jaźń חברת האור", 2), ("北京市", 1), ("한국 주식회사", 1), ("カブシキ会社 Łódź", 2), ("น้ำใส 😀", 2)],
)
def test_fonts_are_in_the_file_and_only_what_is_used_of_them(text: str, at_least: int) -> None:
    raw = written(text)
    reader = PdfReader(BytesIO(raw))
    found = reader.pages[0]["/Resources"]["/Font"].get_object()  # type: ignore[index]
    described = [each.get_object() for each in found.values() if each.get_object()["/BaseFont"] != "/Helvetica"]
    assert len(described) >= at_least
    assert all("/FontFile2" in each["/FontDescriptor"].get_object() for each in described)
    assert len(raw) < 100_000


@pytest.mark.parametrize(
    "text", ["Zażółć gęślą jaźń", "北京市", "한국 주식회사", "カブシキ会社", "חברת", "用页面示 \u13e3"]
)
def test_text_in_the_file_is_found_as_entered(text: str) -> None:
    extracted = PdfReader(BytesIO(written(text))).pages[0].extract_text()
    assert "".join(text.split()).replace("\u13e3", fonts.REPLACEMENT) in "".join(extracted.split())


hostile = st.text(
    st.one_of(
        st.characters(exclude_categories=("Cs",)),
        st.sampled_from("אבשלמ لاعيةنور กขค้ำ कखगि्र 가각갉 \u0300\u064b\u05b0\u0e38 ()\"'<&>\u200d\u202e😀"),
    ),
    max_size=120,
)


@settings(max_examples=depth.examples(60), deadline=None)
@given(hostile)
def test_no_name_keeps_an_invoice_from_being_made(text: str) -> None:
    """The few names at which reportlab fails are set unshaped, which never fails."""
    token = pdf._shaping.set(0)
    try:
        assert written(text)
    finally:
        pdf._shaping.reset(token)
    with suppress(IndexError):
        assert written(text)
