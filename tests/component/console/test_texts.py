"""Completeness of the Chinese catalog: every user-visible text is in it, in the agreed words."""

from __future__ import annotations

import ast
import json
import pickle
import re
from collections.abc import Iterator
from pathlib import Path

import polib
import pytest
from django.conf import settings
from django.test import Client
from django.urls import reverse
from django.utils.translation import gettext, override
from django.utils.translation.template import templatize

from config.environment import BASE_DIR
from instances.routes import certificate_faults
from instances.topics import allow_lists
from tenants import formatting, services
from tenants.errors import Conflict, DomainError, Invalid, Message
from tenants.wording import BROKER_SHAPES, SENTENCES, localized
from tests.testkit.api_cases import PASSWORD, make_member

APPS = ("config", "tenants", "instances", "brokers", "quotas", "billing", "notifications", "archives")
CALLS = {"_", "gettext", "gettext_lazy", "gettext_noop"}
CATALOG = BASE_DIR / "locale" / "zh_Hans" / "LC_MESSAGES" / "django.po"
TEMPLATE_CALL = re.compile(r"\bn?gettext\(u?('(?:[^'\\]|\\.)*'|\"(?:[^\"\\]|\\.)*\")")
# Kafka's words as the console's design fixes them; lag is never 延迟, which is delay.
WORDS = {
    "Topic": "主题", "Partitions": "分区", "Replicas": "副本", "Throttled": "限流", "Quotas": "配额",
    "Instances": "实例", "Plan": "规格", "Produce": "生产", "Consume": "消费", "Leader": "主副本", "Retention": "保留",
}  # fmt: skip


def subclasses(kind: type) -> Iterator[type]:
    yield kind
    for subclass in kind.__subclasses__():
        yield from subclasses(subclass)


# `AgentRefused` answers programs.
REFUSALS = ({cls.__name__ for cls in subclasses(DomainError)} | {"FieldError", "Obstacle", "note"}) - {"AgentRefused"}
APART = {"api", "engine", "migrations", "management", "native", "supervisor"}


def texts_of_code(file: Path) -> Iterator[str]:
    for node in ast.walk(ast.parse(file.read_text(encoding="utf-8"))):
        is_call = isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id in CALLS
        if is_call and node.args and isinstance(node.args[0], ast.Constant) and isinstance(node.args[0].value, str):
            yield node.args[0].value


def texts_of_template(file: Path) -> Iterator[str]:
    for result in TEMPLATE_CALL.finditer(templatize(file.read_text(encoding="utf-8"))):
        yield ast.literal_eval(result[1])


def all_texts() -> set[str]:
    files = [file for app in APPS for file in (BASE_DIR / app).rglob("*.py") if "migrations" not in file.parts]
    templates = [file for app in APPS for file in (BASE_DIR / app).rglob("templates/**/*.html")]
    result = {text for file in files for text in texts_of_code(file)}
    return {text for text in result | {text for file in templates for text in texts_of_template(file)} if text.strip()}


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


def texts_of_refusals(file: Path) -> Iterator[str]:
    """Yields the error texts of a module and the wait reasons of rebalances; `7` stands for each value."""
    tree = ast.parse(file.read_text(encoding="utf-8"))
    names = {
        node.targets[0].id: node.value
        for node in ast.walk(tree)
        if isinstance(node, ast.Assign) and isinstance(node.targets[0], ast.Name)
    }
    for node in ast.walk(tree):
        if isinstance(node, ast.Call) and _callee(node.func) in REFUSALS:
            message = [*node.args, *(word.value for word in node.keywords if word.arg in ("detail", "trouble"))]
            for part in message:
                result = names.get(part.id, part) if isinstance(part, ast.Name) else part
                if isinstance(result, ast.Call) and _callee(result.func) == "Message":
                    result = result.args[0].args[0] if isinstance(result.args[0], ast.Call) else result.args[0]
                if isinstance(result, ast.JoinedStr):
                    yield "".join(
                        str(value.value) if isinstance(value, ast.Constant) else "7" for value in result.values
                    )
                elif isinstance(result, ast.Constant) and isinstance(result.value, str):
                    yield result.value


def texts_with_values(file: Path) -> Iterator[str]:
    """Yields the refusals of a module that have lost their message id: f-strings instead of a `Message`."""
    for node in ast.walk(ast.parse(file.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Call) and _callee(node.func) in REFUSALS:
            first = 1 if isinstance(node.func, ast.Attribute) else 0  # `at` begins with a pointer
            details = [*node.args[first:], *(word.value for word in node.keywords if word.arg in ("detail", "trouble"))]
            yield from (ast.unparse(detail) for detail in details if isinstance(detail, ast.JoinedStr))


def _callee(func: ast.expr) -> str:
    """Returns the name of a called class, also of a call of its `at`."""
    if isinstance(func, ast.Attribute) and func.attr == "at":
        func = func.value
    return func.id if isinstance(func, ast.Name) else ""


def test_every_refusal_of_services_has_a_chinese_text() -> None:
    """Refusals that only the REST API raises stay English."""
    files = [file for app in APPS for file in (BASE_DIR / app).rglob("*.py") if not APART & {*file.parts}]
    said = {text for file in files for text in texts_of_refusals(file) if " " in text}
    assert len(said) > 100
    with override("zh-hans"):
        assert sorted(text for text in said if localized(text) == text) == []


def test_a_refusal_with_values_carries_its_message_id() -> None:
    files = [file for app in APPS for file in (BASE_DIR / app).rglob("*.py") if not APART & {*file.parts}]
    assert [(file.name, text) for file in files for text in texts_with_values(file)] == []


@pytest.mark.django_db
def test_a_refused_action_of_the_panel_is_in_the_operators_language() -> None:
    tenant, panel = make_member().tenant, Client()
    panel.force_login(services.create_operator(email="ops@example.com", password=PASSWORD)[0])
    panel.cookies[settings.LANGUAGE_COOKIE_NAME] = "zh-hans"
    said = {"reason": "abuse", "note": "Write to us.", "typed": tenant.name}
    act = {"action": "suspend", "_selected_action": [tenant.pk]} | said
    with override("en"):  # what a request leaves active is not for the next test
        pages = [panel.post(reverse("admin:tenants_tenant_changelist"), act, follow=True) for _ in range(2)]
    assert "该租户已被暂停。" in pages[1].content.decode()


@pytest.mark.parametrize("shape", BROKER_SHAPES)
def test_a_sentence_of_a_broker_with_values_is_translated_into_chinese(shape: str) -> None:
    names = re.findall(r"%\((\w+)\)s", shape)
    with override("zh-hans"):
        message = localized(shape % {name: f"<{name}>" for name in names})
    assert all(f"<{name}>" in message for name in names)
    assert re.search(r"[\u4e00-\u9fff]", message)


def test_plain_refusals_are_translated_into_chinese() -> None:
    with override("zh-hans"):
        assert [sentence for sentence in SENTENCES if not re.search(r"[\u4e00-\u9fff]", localized(sentence))] == []
    assert localized("Something a broker said.") == "Something a broker said."


@pytest.mark.parametrize("address", ["10.0.0.300", "10.1.2.3/8", "fe80::1%eth0", "1.2.3.4/33", ""])
def test_the_fault_of_an_address_is_translated_into_chinese(address: str) -> None:
    with pytest.raises(Invalid) as refusal:
        allow_lists.normalized_addresses([address], "/produce")
    with override("zh-hans"):
        assert re.search(r"[\u4e00-\u9fff]", localized(refusal.value.detail)), refusal.value.detail


def test_spans_are_in_the_readers_language() -> None:
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


def test_a_message_is_english_for_programs_and_knows_its_id_for_readers() -> None:
    message = Message("A list has at most %(n)s entries.", n=20)
    assert json.dumps({"detail": message}) == '{"detail": "A list has at most 20 entries."}'
    assert pickle.loads(pickle.dumps(message)).values == {"n": 20}
    refusal = Conflict(message)
    with override("zh-hans"):
        assert localized(refusal.detail) == gettext(message.msgid) % {"n": 20} != message


def test_a_message_inside_a_message_is_translated_into_chinese() -> None:
    message = certificate_faults.chain_order(certificate_faults.certificate(2))
    assert message == "Certificate 2 is not signed by the one behind it."
    with override("zh-hans"):
        assert localized(message) == "证书 2不是由其后的证书签发的。"


def test_a_sentence_of_a_broker_inside_a_message_is_translated_too() -> None:
    message = Message("Nothing is known of the group at the moment: %(why)s.", why="its coordinator is loading")
    with override("zh-hans"):
        assert localized(message.values["why"]) in localized(message)
        assert "loading" not in localized(message)
