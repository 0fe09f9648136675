"""Every text a person may read is in the Chinese catalog, in the given words."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import polib
import pytest
from django.utils.translation import override
from django.utils.translation.template import templatize

from config.environment import BASE_DIR
from tenants import formatting
from tenants.wording import SENTENCES, SHAPES, localized

APPS = ("config", "tenants", "instances", "brokers", "quotas", "billing")
CALLS = {"_", "gettext", "gettext_lazy", "gettext_noop"}
CATALOG = BASE_DIR / "locale" / "zh_Hans" / "LC_MESSAGES" / "django.po"
TEMPLATE_CALL = re.compile(r"\bn?gettext\(u?('(?:[^'\\]|\\.)*'|\"(?:[^\"\\]|\\.)*\")")
# Kafka's words as the console's design fixes them; lag is never 延迟, which is delay.
WORDS = {
    "Topic": "主题", "Partitions": "分区", "Replicas": "副本", "Throttled": "限流", "Quotas": "配额",
    "Instances": "实例", "Plan": "规格", "Produce": "生产", "Consume": "消费", "Leader": "主副本", "Retention": "保留",
}  # fmt: skip


def texts_of_code(file: Path) -> Iterator[str]:
    for node in ast.walk(ast.parse(file.read_text(encoding="utf-8"))):
        is_call = isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id in CALLS
        if is_call and node.args and isinstance(node.args[0], ast.Constant) and isinstance(node.args[0].value, str):
            yield node.args[0].value


def texts_of_template(file: Path) -> Iterator[str]:
    for found in TEMPLATE_CALL.finditer(templatize(file.read_text(encoding="utf-8"))):
        yield ast.literal_eval(found[1])


def all_texts() -> set[str]:
    files = [file for app in APPS for file in (BASE_DIR / app).rglob("*.py") if "migrations" not in file.parts]
    templates = [file for app in APPS for file in (BASE_DIR / app).rglob("templates/**/*.html")]
    found = {text for file in files for text in texts_of_code(file)}
    return {text for text in found | {text for file in templates for text in texts_of_template(file)} if text.strip()}


def test_every_text_of_code_and_templates_is_in_the_catalog() -> None:
    known = {entry.msgid for entry in polib.pofile(str(CATALOG)) if entry.translated()}
    assert sorted(all_texts() - known) == []


def test_chinese_uses_the_given_words() -> None:
    catalog = {entry.msgid: entry.msgstr for entry in polib.pofile(str(CATALOG))}
    assert {english: catalog[english] for english, word in WORDS.items() if word not in catalog[english]} == {}
    assert "延迟" not in "".join(catalog.values())


def test_chinese_has_full_width_punctuation() -> None:
    wrong = [
        entry.msgstr
        for entry in polib.pofile(str(CATALOG))
        if re.search(r"[\u4e00-\u9fff][,;!?](?!\d)", entry.msgstr) or "！" in entry.msgstr
    ]
    assert wrong == []


@pytest.mark.parametrize("shape", SHAPES)
def test_a_refusal_with_values_is_told_in_chinese(shape: str) -> None:
    names = re.findall(r"%\((\w+)\)s", shape)
    with override("zh-hans"):
        told = localized(shape % {name: f"<{name}>" for name in names})
    assert all(f"<{name}>" in told for name in names)
    assert re.search(r"[\u4e00-\u9fff]", told)


def test_plain_refusals_are_told_in_chinese() -> None:
    with override("zh-hans"):
        assert [sentence for sentence in SENTENCES if not re.search(r"[\u4e00-\u9fff]", localized(sentence))] == []
    assert localized("Something a broker said.") == "Something a broker said."


def test_spans_are_told_in_the_readers_language() -> None:
    assert [formatting.span(s) for s in (0.7, 5, 42, 184, 3_600, 100_800, 700_000)] == [
        "0.7 s", "5 s", "42 s", "3 min 4 s", "1 h", "28 h", "8 d",
    ]  # fmt: skip
    with override("zh-hans"):
        assert formatting.span(184) == "3 分 4 秒"


def test_numbers_carry_one_unit_and_commas() -> None:
    assert formatting.rate(26_400_000) == "26.4 MB/s"
    assert formatting.rate(18_000) == "18.0 kB/s"
    assert formatting.rate_limit(40_000_000) == "40 MB/s"
    assert formatting.rate_limit(1_500_000) == "1.5 MB/s"
    assert formatting.size(3_820_000_000_000) == "3.82 TB"
    assert formatting.size(512) == "512 B"
    assert formatting.size_use(9_900_000_000_000, 12_000_000_000_000) == ("9.90", "12", "TB")
    assert formatting.count(1_204) == "1,204"
    assert formatting.delay(9_999) == "9,999 ms"
    assert formatting.delay(12_300) == "12.3 s"
    assert formatting.count(None) == formatting.UNKNOWN
