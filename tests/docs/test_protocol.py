"""The tables and examples of docs/protocol are those of the code."""

from __future__ import annotations

import importlib
import re
from pathlib import Path
from typing import Final

import pytest

import roquet
from roquet.protocol.headers.send import SendHeaderV2
from roquet.protocol.records import message as m
from roquet.protocol.records.batch import batch_item
from roquet.protocol.records.message import DEAD_LETTER_PREFIX, RESERVED_PROPERTIES, tag_code
from roquet.protocol.remoting.codes import LANGUAGE_NUMBERS, VERSION, RequestCode, ResponseCode
from roquet.protocol.remoting.command import BINARY, RESPONSE, Command
from tests.docs.pages import DOCS, code_in, hex_blocks, name_of, rows, tables
from tests.protocol.examples import RECORD

PROTOCOL: Final = DOCS / "protocol"
CODES: Final = PROTOCOL / "request-codes.md"
SOURCES: Final = Path(roquet.__file__).parent
PAGES: Final = sorted(PROTOCOL.glob("*.md"))
CODE_ROWS: Final = [row for row in tables(CODES, "code") if len(row) > 3]
"""The tables of request codes; that of response codes has fewer columns."""


def test_every_request_code_stands_in_the_tables() -> None:
    shown = {row[1]: int(row[0]) for row in CODE_ROWS}
    not_served = {
        name: int(number)
        for number, name in re.findall(r"\b(\d+) ([A-Z_]{4,})\b", not_served_text())
    }

    assert shown.items() <= {code.name: code.value for code in RequestCode}.items()
    assert {code.name: code.value for code in RequestCode}.items() <= {
        **shown,
        **not_served,
    }.items()


def not_served_text() -> str:
    text = CODES.read_text(encoding="utf-8")
    return re.sub(
        r"\s+", " ", text.partition("## Codes that roquet does not serve")[2].partition("##")[0]
    )


def test_every_response_code_stands_in_its_table() -> None:
    shown = {row[1]: int(row[0]) for row in tables(CODES, "code") if len(row) == 3}

    assert shown == {code.name: code.value for code in ResponseCode}


@pytest.mark.parametrize("row", CODE_ROWS, ids=lambda row: row[1])
def test_a_request_s_header_and_handler_are_where_its_row_says(row: list[str]) -> None:
    _, name, _, header, _, handlers, response = row

    for place in [*code_in(header), *re.findall(r"`([a-z]+\.[A-Z]\w+)`", response)]:
        module, _, kind = place.partition(".")
        assert hasattr(importlib.import_module(f"roquet.protocol.headers.{module}"), kind)
    assert code_in(handlers)
    for file in code_in(handlers):
        assert f"RequestCode.{name}" in (SOURCES / file).read_text(encoding="utf-8")


@pytest.mark.parametrize("page", PAGES, ids=name_of)
def test_every_module_that_a_page_names_exists(page: Path) -> None:
    named = re.findall(r"`((?:[a-z0-9_]+/)+(?:[a-z0-9_]+\.py)?)`", page.read_text(encoding="utf-8"))

    assert [place for place in named if not (SOURCES / place).exists()] == []


def test_the_letters_of_a_send_are_those_of_its_header() -> None:
    shown = {
        letter: code_in(name)[0] for name, _, letter, _ in rows(PROTOCOL / "producing.md", "field")
    }

    assert shown == {letter: camel_case(name) for name, letter in SendHeaderV2.SPELLING.items()}


def camel_case(name: str) -> str:
    first, *rest = name.split("_")
    return first + "".join(word.capitalize() for word in rest)


def test_reserved_properties_are_marked() -> None:
    shown = rows(PROTOCOL / "messages.md", "name")
    marked = {name for names, mark, _ in shown for name in (code_in(names)[:1] if mark == "first r" else code_in(names))
              if mark}  # fmt: skip

    assert marked == RESERVED_PROPERTIES


def test_no_system_topic_is_missing() -> None:
    topics = {
        name for row in rows(PROTOCOL / "messages.md", "system topic") for name in code_in(row[0])
    }

    assert m.NOT_SENDABLE | {m.DEFAULT_TOPIC, m.BENCHMARK_TOPIC, m.TRACE_TOPIC} <= topics
    assert f"`{DEAD_LETTER_PREFIX}group`" in (PROTOCOL / "messages.md").read_text(encoding="utf-8")


def test_languages_and_tag_codes() -> None:
    languages = (PROTOCOL / "remoting.md").read_text(encoding="utf-8")
    shown = {
        name: int(number)
        for name, number in re.findall(r"\b([A-Z_]+) (\d+)(?: \(5\.x\))? \|", languages)
    }

    assert shown == LANGUAGE_NUMBERS
    assert [tag_code(tag) for tag in ("TagA", "TagB", "中文", "😀a")] == [
        2598919,
        2598920,
        646394,
        54959966,
    ]


def test_examples_of_frames() -> None:
    json_request, binary_request, response = hex_blocks(PROTOCOL / "remoting.md")
    request = Command(RequestCode.GET_ROUTEINFO_BY_TOPIC, {"topic": "T"}, opaque=7, language="JAVA")
    answer = Command(17, {}, b"\1\2", 7, RESPONSE, "no", "JAVA", header_type=BINARY)

    assert VERSION == 213 + 2 * (100 * (4 - 4) + 10 * 9 + 8)
    assert request.encode() == json_request
    request.header_type = BINARY
    assert request.encode() == binary_request
    assert answer.encode() == response


def test_examples_of_messages() -> None:
    stored, element = hex_blocks(PROTOCOL / "messages.md")

    assert RECORD.encode() == stored
    assert RECORD.offset_message_id in (PROTOCOL / "messages.md").read_text(encoding="utf-8")
    assert batch_item(0, b"hi", b"TAGS\x01TagA") == element
