"""Docstrings open with what a thing is or does, names of tests with what holds; the list of exceptions only shrinks."""

from __future__ import annotations

from pathlib import Path

import pytest

from config.environment import BASE_DIR
from tests.shape import prose
from tests.shape.test_tidy import name_of, python_files

OFFENDER = '"""A module."""\n\n\ndef size() -> int:\n    """What it holds, in bytes."""\n    return 1\n'
MENDED = OFFENDER.replace("What it holds, in bytes.", "Returns the size in bytes.")
CHANGED = OFFENDER.replace("in bytes", "in kilobytes")


def complaints_of(text: str, lines: list[str], path: str = "pkg/a.py") -> list[str]:
    return prose.complaints(prose.offences(path, text), lines)


def listed(text: str, path: str = "pkg/a.py") -> list[str]:
    return sorted(prose.offences(path, text))


def test_every_new_or_changed_docstring_begins_with_what_the_thing_is_or_does() -> None:
    found = prose.offences_of_tree(BASE_DIR, python_files())
    assert not prose.complaints(found, prose.read_list(prose.LIST))


def test_retired_words_stay_out_of_docstrings_and_comments() -> None:
    files = [(name_of(file), file.read_text(encoding="utf-8")) for file in python_files()]
    retired = {name: words for name, text in files if (words := prose.retired_words(text))}
    assert not retired, "use the noun or the number"


def test_names_of_tests_are_sentences_with_a_subject() -> None:
    files = [(name_of(file), file.read_text(encoding="utf-8")) for file in python_files() if "tests" in file.parts]
    misnamed = {name: names for name, text in files if (names := prose.misnamed_tests(text))}
    assert len(files) > 500 and not misnamed, "name what holds, subject first"


@pytest.mark.parametrize(
    ("name", "is_misnamed"),
    [
        ("what_is_no_rule_is_refused", True),
        ("of_two_the_later_counts", True),
        ("by_whom", True),
        ("a_member_is_told", True),
        ("a_tenant_has_so_many_rules", True),
        ("rules_are_limited_as_many_as_there_are", True),
        ("an_office_of_what_was", False),
        ("whoops", False),
        ("an_untold_story", False),
    ],
)
def test_a_name_without_a_subject_is_found_in_classes_too(name: str, is_misnamed: bool) -> None:
    text = f"class TestA:\n    async def test_{name}(self) -> None:\n        def what_is() -> None: ...\n"
    assert prose.misnamed_tests(text) == [f"test_{name}"] * is_misnamed


def test_a_retired_word_is_found_in_prose_alone() -> None:
    text = 'def f():\n    """A reader is told."""\n    told = "so many"  # whoever\n'
    assert prose.retired_words(text) == ["line 1: told", "line 3: whoever"]


def test_a_listed_offender_is_left_alone() -> None:
    assert not complaints_of(OFFENDER, listed(OFFENDER))


def test_a_new_offender_is_named_with_its_sentence() -> None:
    (line,) = complaints_of(OFFENDER, [])
    assert line == "pkg/a.py:size: begin with what it is or does: What it holds, in bytes."


def test_an_offender_that_changes_without_being_mended_is_new() -> None:
    lines = complaints_of(CHANGED, listed(OFFENDER))
    assert len(lines) == 2
    assert any("What it holds, in kilobytes." in line for line in lines)
    assert any("mended or gone" in line for line in lines)


def test_only_the_first_sentence_counts() -> None:
    longer = OFFENDER.replace("in bytes.", "in bytes. Of every file.")
    assert listed(longer) == listed(OFFENDER)


@pytest.mark.parametrize("text", [MENDED, '"""A module without it."""\n'])
def test_a_stale_entry_fails_with_the_command_that_takes_it_off(text: str) -> None:
    (line,) = complaints_of(text, listed(OFFENDER))
    assert f"run `{prose.COMMAND}`" in line


def test_an_unsorted_list_or_one_that_names_an_offender_twice_fails() -> None:
    found = prose.offences("pkg/a.py", OFFENDER) | prose.offences("pkg/b.py", OFFENDER)
    assert not prose.complaints(found, sorted(found))
    assert prose.complaints(found, sorted(found, reverse=True))
    assert prose.complaints(found, sorted([*found, next(iter(found))]))


@pytest.mark.parametrize(
    "opening",
    [
        "`take`, once more", "Of one broker", "As before", "What", "Who asks", "Whoever", "How", "Whether", "By name",
        "The same as\n    before", "of one", "What's",
    ],
)  # fmt: skip
def test_each_opening_without_a_subject_is_an_offence(opening: str) -> None:
    module = f'class A:\n    """A class."""\n\n    async def run(self) -> None:\n        """{opening}."""\n'
    (entry,) = listed(module)
    assert entry.startswith("pkg/a.py:A.run ")


@pytest.mark.parametrize("opening", ["Office of", "Assigns `x`", "Bytes", "However", "Wholly", "The samovar", ""])
def test_other_openings_are_not(opening: str) -> None:
    assert not listed(f'"""{opening}."""\n')


def test_modules_classes_and_nested_functions_are_read() -> None:
    text = (
        '"""Of modules."""\n'
        'class A:\n    """Of classes."""\n    if True:\n        def f(self) -> None:\n            """Of methods."""\n'
        '            def g() -> None:\n                """Of functions."""\n'
    )
    names = {entry.split(" ")[0].partition(":")[2] for entry in listed(text)}
    assert names == {"<module>", "A", "A.f", "A.f.g"}


def test_the_command_takes_off_what_is_mended_and_refuses_to_add(tmp_path: Path) -> None:
    """A small tree in which one docstring is mended, one is left and one is new."""
    folder = tmp_path / "pkg"
    folder.mkdir()
    files = [folder / "mended.py", folder / "left.py"]
    for file in files:
        file.write_text(OFFENDER)
    offenders = tmp_path / "offenders.txt"
    offenders.write_text("".join(f"{entry}\n" for entry in prose.offences_of_tree(tmp_path, files)))

    files[0].write_text(MENDED)
    new = folder / "new.py"
    new.write_text(OFFENDER)
    refused = prose.shrink(prose.offences_of_tree(tmp_path, [*files, new]), offenders)

    assert [line.partition(": ")[0] for line in refused] == ["pkg/new.py:size"]
    assert prose.read_list(offenders) == listed(OFFENDER, "pkg/left.py")

    new.unlink()
    assert not prose.shrink(prose.offences_of_tree(tmp_path, files), offenders)
