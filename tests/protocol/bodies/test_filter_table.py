"""The table of filters is Apache's consumerFilter.json."""

from __future__ import annotations

import pytest

from roquet.protocol.bodies.filter_table import BloomData, FilterData, FilterTable
from roquet.protocol.bodies.tables import parse
from roquet.protocol.json.dialect import dump_bytes

TEXT = (
    b'{"filterDataByTopic":{"T":{"groupFilterData":{"g":{"bloomFilterData":{"bitNum":112,"bitPos":[3,5]},'
    b'"bornTime":7,"clientVersion":1,"consumerGroup":"g","dead":true,"deadTime":9,"expression":"a > 3",'
    b'"expressionType":"SQL92","topic":"T"}},"topic":"T"}}}'
)
TABLE = FilterTable({"T": {"g": FilterData("T", "g", "a > 3", 1, 7, 9, BloomData(112, (3, 5)))}})


def test_a_table_is_written_and_read() -> None:
    assert dump_bytes(TABLE.to_json()) == TEXT
    assert parse(TEXT, FilterTable.from_json) == TABLE
    assert parse(b'{"filterDataByTopic":null}', FilterTable.from_json) == FilterTable()


def test_a_filter_without_bits_says_nothing_of_them() -> None:
    data = FilterData("T", "g", "a > 3", 1, 7)

    assert "bloomFilterData" not in data.to_json()
    assert FilterData.from_json({**data.to_json(), "bloomFilterData": {}}) == data


@pytest.mark.parametrize(
    "text",
    [b'{"filterDataByTopic":{"T":{"groupFilterData":{"g":{}}}}}', b'{"filterDataByTopic":7}'],
)
def test_another_document_is_refused(text: bytes) -> None:
    with pytest.raises(ValueError, match="JSON"):
        parse(text, FilterTable.from_json)
