"""Numbers of JSON documents in Java's ranges."""

from __future__ import annotations

from typing import Any

import pytest

from roquet.common.java import INT_MAX, LONG_MAX
from roquet.protocol.bodies.tables import (
    BrokerData,
    DataVersion,
    DelayOffsetTable,
    GroupConfig,
    GroupTable,
    OffsetTable,
    Registration,
    Subscription,
    TopicConfig,
    TopicTable,
    parse,
)
from roquet.protocol.json.dialect import dump_bytes
from roquet.protocol.json.numbers import NumberError, as_int32, as_int64

NOT_A_NUMBER = [
    "",
    " ",
    "x",
    "1 ",
    " 1",
    "1_0",
    "0x1",
    "1.0",
    "--1",
    "+-1",
    "+",
    "1e3",
    "\ud800",
    "9" * 5000,
]


@pytest.mark.parametrize(
    "value",
    [*NOT_A_NUMBER, None, [], {}, 1e300, float("nan"), float("inf"), -float("inf"), 1 << 64, b"1"],
)
def test_what_json_has_instead_of_a_number_is_refused(value: object) -> None:
    for read in (as_int32, as_int64):
        with pytest.raises(NumberError):
            read(value)


def test_fastjson_takes_text_and_whole_fractions_and_so_do_we() -> None:
    assert [as_int32(value) for value in ("7", 4.0, -1, True)] == [7, 4, -1, 1]


BODIES: list[tuple[Any, dict[str, Any], list[tuple[str, int]]]] = [
    (DataVersion, {}, [("timestamp", LONG_MAX), ("counter", LONG_MAX), ("stateVersion", LONG_MAX)]),
    (
        TopicConfig,
        {"topicName": "T"},
        [
            ("readQueueNums", INT_MAX),
            ("writeQueueNums", INT_MAX),
            ("perm", INT_MAX),
            ("topicSysFlag", INT_MAX),
        ],
    ),
    (
        GroupConfig,
        {"groupName": "G"},
        [
            *(("retryQueueNums", INT_MAX), ("retryMaxTimes", INT_MAX)),
            *(("brokerId", LONG_MAX), ("whichBrokerWhenConsumeSlowly", LONG_MAX)),
        ],
    ),
    (Subscription, {"topic": "T"}, [("subVersion", LONG_MAX)]),
]


@pytest.mark.parametrize(
    ("kind", "needed", "members"), BODIES, ids=[kind.__name__ for kind, *_ in BODIES]
)
def test_a_number_in_a_body_has_the_range_that_it_has_in_java(
    kind: Any, needed: dict[str, Any], members: list[tuple[str, int]]
) -> None:
    for name, most in members:
        for number in (most, -most - 1):
            assert (
                parse(dump_bytes({**needed, name: number}), kind.from_json).to_json()[name]
                == number
            )
        for text in (f"{most + 1}", f"{-most - 2}", "1e300", '"1_0"', "9" * 5000, "[]"):
            body = dump_bytes(needed)[:-1] + b',"%b":%b}' % (name.encode(), text.encode())
            with pytest.raises(ValueError, match="JSON"):
                parse(body.replace(b"{,", b"{"), kind.from_json)


def test_one_odd_entry_does_not_take_the_others_of_its_table_with_it(
    caplog: pytest.LogCaptureFixture,
) -> None:
    """A state file that an earlier version wrote, or a broker's registration."""
    odd = {"topicName": "odd", "readQueueNums": 1 << 40}
    topics = {"topicConfigTable": {"odd": odd, "fine": {"topicName": "fine"}}}
    assert list(parse(dump_bytes(topics), TopicTable.from_json).topics) == ["fine"]
    registered = parse(dump_bytes({"topicConfigSerializeWrapper": topics}), Registration.from_json)
    assert list(registered.table.topics) == ["fine"]
    groups = {
        "subscriptionGroupTable": {
            "odd": {"groupName": "odd", "brokerId": "x"},
            "fine": {"groupName": "fine"},
        }
    }
    assert list(parse(dump_bytes(groups), GroupTable.from_json).groups) == ["fine"]
    offsets = b'{"offsetTable":{"T@G":{0:5,1:9223372036854775808,99999999999:7}}}'
    assert parse(offsets, OffsetTable.from_json).offsets == {"T@G": {0: 5}}
    assert parse(
        b'{"offsetTable":{1:5,2:-9223372036854775809}}', DelayOffsetTable.from_json
    ).offsets == {1: 5}
    assert len(caplog.records) == 5  # one of each table
    assert "first=readQueueNums: 1099511627776 is no number from" in caplog.text
    assert "count=2 first=9223372036854775808 is no number from" in caplog.text


def test_a_broker_id_is_a_long() -> None:
    assert BrokerData.from_json(
        {"brokerName": "b", "brokerAddrs": {str(LONG_MAX): "a"}}
    ).addresses == {LONG_MAX: "a"}
    with pytest.raises(NumberError):
        BrokerData.from_json({"brokerName": "b", "brokerAddrs": {str(LONG_MAX + 1): "a"}})
