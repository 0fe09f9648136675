"""Messages that are sent again: the form sends the same bytes, or says what it leaves out."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from instances.messages.drafts import draft_of
from instances.messages.forms import SendForm
from instances.messages.interfaces import Record

PARTITIONS = 3
TEXTS = st.one_of(st.binary(max_size=40), st.text(max_size=40).map(lambda text: text.encode(errors="replace")))
LINES = st.sampled_from([b"a\r\nb", b"a\nb", b"\na", b" a ", b"a\rb", b"[1, 2]", b'{"a": 1}', b"\x00", b"\xc2\x85"])
BYTES = st.one_of(TEXTS, LINES)


@given(
    key=st.none() | BYTES,
    value=st.none() | BYTES,
    headers=st.lists(st.tuples(BYTES, st.none() | BYTES), max_size=4),
    partition=st.integers(0, PARTITIONS - 1),
)
def test_a_message_sent_again_has_the_same_bytes(
    key: bytes | None, value: bytes | None, headers: list[tuple[bytes, bytes | None]], partition: int
) -> None:
    record = Record(
        partition=partition, offset=5, timestamp_ms=1, is_append_time=False, key=key, value=value, headers=headers,
        header_count=len(headers),
    )  # fmt: skip
    draft = draft_of(record)
    posted = {name: as_browser(str(text)) for name, text in draft.values.items() if name != "is_tombstone"}
    if draft.values["is_tombstone"]:
        posted["is_tombstone"] = "on"
    form = SendForm(posted, partitions=PARTITIONS)
    assert form.is_valid(), form.errors
    sent = form.message
    assert (sent.value, sent.partition) == (value, partition)
    assert sent.key == (key or None)
    assert draft.has_empty_key is (key == b"")
    assert draft.too_large == ()
    kept = [(name.encode(), text) for name, text in sent.headers]
    assert len(kept) + draft.left_out_header_count == len(headers)
    left = iter(headers)
    assert all(header in left for header in kept), "the headers that are kept, in their order"


def as_browser(text: str) -> str:
    """Line ends as a browser posts them."""
    return text.replace("\r\n", "\n").replace("\r", "\n").replace("\n", "\r\n")


def test_the_form_names_parts_that_are_too_large_for_it() -> None:
    record = Record(
        partition=0, offset=0, timestamp_ms=1, is_append_time=False, key=b"k" * 65_537, value=b"\xff" * 800_000,
        headers=[(b"h", b"x" * 11_000)] + [(b"n", b"1")] * 100, header_count=250,
    )  # fmt: skip
    draft = draft_of(record)
    assert draft.too_large == ("key", "value")
    assert draft.left_out_header_count == 150
