"""The messages of a pull's answer are those with a selected tag, whatever the broker sent."""

from __future__ import annotations

from dataclasses import replace
from typing import Final

import pytest

from roquet.client._consume.pull_result import PullResult, PullStatus
from roquet.errors import CorruptRecord
from roquet.protocol.filters.tags import TagFilter
from roquet.protocol.records.message import java_hash
from tests.protocol.examples import RECORD, STORED

TAGS: Final = ("Aa", "BB", None)
"""Two tags of one hash, and no tag."""


def result(expression: str, body: bytes) -> PullResult:
    return PullResult(PullStatus.FOUND, 9, 0, 9, 0, body, TagFilter.parse(expression))


def tagged(tag: str | None) -> bytes:
    return replace(RECORD, properties_text=f"TAGS\x01{tag}" if tag else "").encode()


def tags(pulled: PullResult) -> list[str | None]:
    return [record.properties.get("TAGS") for record in pulled.records]


def test_messages_whose_tag_only_has_the_same_hash_are_left_out() -> None:
    assert java_hash("Aa") == java_hash("BB")
    body = b"".join(map(tagged, TAGS))

    assert tags(result("Aa", body)) == ["Aa"]
    assert tags(result("BB || C", body)) == ["BB"]
    assert tags(result("*", body)) == ["Aa", "BB", None]


def test_an_answer_without_messages_has_none() -> None:
    assert result("*", b"").records == []
    assert PullResult(PullStatus.NO_NEW, 9, 0, 9, 0).records == []


def test_the_messages_are_as_they_were_stored() -> None:
    assert result("*", STORED * 2).records == [RECORD, RECORD]
    assert result("TagA", STORED).records == [RECORD]


@pytest.mark.parametrize("body", [STORED[:-1], STORED + b"\0", bytes(100)])
def test_other_bytes_are_no_messages(body: bytes) -> None:
    for expression in ("*", "TagA"):
        with pytest.raises(CorruptRecord):
            _ = result(expression, body).records
