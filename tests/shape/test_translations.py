"""English and Chinese say the same things: every text has a translation, and every translation has a text."""

from __future__ import annotations

import re
from pathlib import Path

import polib
import pytest
from django.conf import settings

from config.environment import BASE_DIR
from config.translations import catalogs, compile_stale

PLACEHOLDER = re.compile(r"%\(\w+\)[sd]|\{\w*\}")
TEMPLATE_TAG = re.compile(r"""\{%\s*(?:trans|translate)\s+(["'])(?P<text>.+?)\1""")
APPS = ("config", "tenants", "instances", "brokers", "quotas", "billing", "notifications", "archives")


def chinese() -> list[Path]:
    return [file for file in catalogs(settings.LOCALE_PATHS) if file.parent.parent.name == "zh_Hans"]


def test_every_text_is_translated() -> None:
    assert chinese(), "there is no Chinese catalog"
    for file in chinese():
        catalog = polib.pofile(str(file))
        assert not [entry.msgid for entry in catalog.untranslated_entries()]
        assert not [entry.msgid for entry in catalog.fuzzy_entries()]


def test_placeholders_survive_translation() -> None:
    for file in chinese():
        for entry in polib.pofile(str(file)):
            originals = {*PLACEHOLDER.findall(entry.msgid), *PLACEHOLDER.findall(entry.msgid_plural)}
            for text in [entry.msgstr, *entry.msgstr_plural.values()]:
                assert not set(PLACEHOLDER.findall(text)) - originals, entry.msgid


def test_texts_of_templates_are_in_the_catalog() -> None:
    known = {entry.msgid for file in chinese() for entry in polib.pofile(str(file))}
    wanted = {
        result["text"]
        for app in APPS
        for template in (BASE_DIR / app).rglob("templates/**/*.html")
        for result in TEMPLATE_TAG.finditer(template.read_text(encoding="utf-8"))
    }
    assert not sorted(wanted - known)


def test_a_stale_catalog_is_compiled_once(tmp_path: Path) -> None:
    folder = tmp_path / "zh_Hans" / "LC_MESSAGES"
    folder.mkdir(parents=True)
    (folder / "django.po").write_text('msgid ""\nmsgstr "Content-Type: text/plain; charset=UTF-8\\n"\n')
    assert compile_stale([tmp_path]) == [folder / "django.mo"]
    assert compile_stale([tmp_path]) == []


@pytest.mark.parametrize("language", [code for code, _ in settings.LANGUAGES])
def test_django_knows_the_language(language: str) -> None:
    from django.utils.translation import get_language_info

    assert get_language_info(language)["code"] == language
