"""Rendering of Markdown to HTML that complies with the console's content security policy: no raw HTML, styles, scripts
or images. Pure.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

from markdown_it import MarkdownIt
from markdown_it.token import Token

_ANCHOR = re.compile(r"[^\w\- ]")


def render_markdown(text: str, resolve: Callable[[str], str | None]) -> str:
    """Renders the document without its first heading. `resolve` returns the target of a link; None makes it
    plain text.
    """
    parser = MarkdownIt("commonmark", {"html": False}).enable("table")
    tokens = parser.parse(text)
    if len(tokens) >= 3 and tokens[0].type == "heading_open" and tokens[0].tag == "h1":
        tokens = tokens[3:]
    for number, token in enumerate(tokens):
        if token.type == "heading_open":
            token.attrSet("id", anchor_of(tokens[number + 1].content))
        elif token.type in ("th_open", "td_open"):
            _align(token)
        elif token.type == "inline":
            token.children = _with_resolved_links(token.children or [], resolve)
    html = str(parser.renderer.render(tokens, parser.options, {}))
    # Elements that may be wider than the window must be scrollable by keyboard.
    html = html.replace("<pre>", '<pre tabindex="0">')
    return html.replace("<table>", '<div class="table-wrap" tabindex="0"><table>').replace("</table>", "</table></div>")


def anchor_of(heading: str) -> str:
    """Returns the anchor of a heading, as GitHub generates it."""
    return _ANCHOR.sub("", heading.strip().lower()).replace(" ", "-")


def _align(token: Token) -> None:
    """Sets classes instead of inline styles, which the policy forbids."""
    style = str(token.attrs.pop("style", ""))
    if "right" in style:
        token.attrSet("class", "right")


def _with_resolved_links(children: list[Token], resolve: Callable[[str], str | None]) -> list[Token]:
    result: list[Token] = []
    dropped = 0
    for child in children:
        if child.type == "image":
            child = _text(child.content)
        elif child.type == "link_open":
            link = resolve(_address(child.attrs.get("href", "")))
            if link is None:
                dropped += 1
                continue
            child.attrSet("href", link)
        elif child.type == "link_close" and dropped:
            dropped -= 1
            continue
        result.append(child)
    return result


def _address(value: Any) -> str:
    return str(value)


def _text(content: str) -> Token:
    return Token("text", "", 0, content=content)
