"""The documentation in the console: every page opens, its links lead on, and it can be searched."""

from __future__ import annotations

import html
import re

import pytest
from django.test import Client
from django.urls import reverse

from tenants.help import library
from tenants.help.rendering import render_markdown
from tenants.models import Member, User

pytestmark = pytest.mark.django_db

LINK = re.compile(r'href="(/docs/[^"#]*)(?:#([^"]*))?"')


def test_every_document_opens_and_its_links_lead_to_documents(ida: Client) -> None:
    pages = {f"/docs/{name}/": library.page_of(name) for name in library.documents()}
    assert len(pages) > 30
    for address, body in pages.items():
        for target, anchor in LINK.findall(body):
            assert target in pages, (address, target)
            assert not anchor or f'id="{anchor}"' in pages[target], (address, target, anchor)
        assert "style=" not in body, address
        assert not re.search(r"<(script|img|iframe)", body), address
    page = ida.get(reverse("page-help-document", args=["how-to/limit-a-client"]))
    assert page.status_code == 200
    assert library.documents()["how-to/limit-a-client"].title in html.unescape(page.content.decode())


def test_help_stands_in_the_header_of_every_page(ida: Client) -> None:
    assert f'class="help-link" href="{reverse("page-help")}"' in ida.get(reverse("page-instances")).content.decode()


def test_the_documentation_is_searched_by_words(ida: Client) -> None:
    page = html.unescape(ida.get(reverse("page-help"), {"q": "hanging TRANSACTION"}).content.decode())
    first = page.partition('class="band-head"')[2]
    assert first.index("/docs/how-to/end-a-hanging-transaction/") < first.index("All documents")
    empty = html.unescape(ida.get(reverse("page-help"), {"q": "zzqq <b>"}).content.decode())
    assert "Nothing has all of “zzqq <b>”" in empty
    assert "<b>”" not in ida.get(reverse("page-help"), {"q": "zzqq <b>"}).content.decode()


def test_the_palette_finds_documents(ida: Client) -> None:
    entries = ida.get("/palette/", {"q": "limit a client"}).json()["entries"]
    assert any(entry["url"].startswith("/docs/") for entry in entries)


@pytest.mark.parametrize("name", ["../manage", "how-to/../../manage.py", "nothing", "decisions/README", "HACKING"])
def test_no_other_file_is_served(ida: Client, name: str) -> None:
    assert ida.get(f"/docs/{name}/").status_code == 404


def test_a_long_search_and_odd_characters_are_answered(ida: Client) -> None:
    for words in ("x" * 5_000, "\x00", "a " * 500):
        assert ida.get(reverse("page-help"), {"q": words}).status_code == 200


def test_strangers_sign_in_first() -> None:
    assert Client().get(reverse("page-help")).status_code == 302


def test_chinese_readers_see_that_the_documentation_is_english(ida: Client, owner: Member) -> None:
    User.objects.update(language="zh-hans")
    page = ida.get(reverse("page-help")).content.decode()
    assert "文档为英文" in page
    assert 'lang="en"' in page


def test_html_in_a_document_is_text() -> None:
    body = render_markdown("# T\n\n<script>x</script> [a](javascript:x) ![b](c.png)\n", lambda _link: None)
    assert "<script" not in body
    assert "javascript:" not in re.sub(r">[^<]*<", "><", body)
