"""What is dumped is what was stored."""

from __future__ import annotations

from base64 import b64decode
from dataclasses import replace
from pathlib import Path
from typing import Any, Final

import pytest

from roquet.protocol.records.record import Record, decode, host_bytes
from roquet.storetool.dump import Wanted, as_json, dump
from tests.storetool.stores import START_MS, V6, Broker, file_of, files_of, flip

GOLDEN: Final = Path(__file__).parents[1] / "golden" / "store" / "clean"


@pytest.fixture
def root(tmp_path: Path) -> Path:
    broker = Broker(tmp_path)
    broker.fill(40)
    broker.put("grüße".encode(), "U", KEYS="wanted k1")
    broker.put(b"\xff\xfe", "U", born_host=V6, TAGS="t")
    broker.put(b"wanted by its other key", UNIQ_KEY="wanted")
    broker.stop()
    return tmp_path


def bodies(root: Path, wanted: Wanted) -> list[bytes]:
    return [decode(data).body for data in dump(files_of(root), wanted)]


def numbered(numbers: range) -> list[bytes]:
    return [b"message %d" % number for number in numbers]


def test_all_records_come_in_the_log_s_order(root: Path) -> None:
    assert bodies(root, Wanted())[:40] == numbered(range(40))
    assert len(bodies(root, Wanted())) == 43


def test_a_queue_s_records_come_by_its_entries(root: Path) -> None:
    assert bodies(root, Wanted("T", 1)) == numbered(range(1, 40, 2))
    assert bodies(root, Wanted("T", 7)) == []


@pytest.mark.parametrize("queue_id", [1, None])
def test_a_range_of_queue_offsets(root: Path, queue_id: int | None) -> None:
    found = bodies(root, Wanted("T", queue_id, first=15, end=17))

    assert found == numbered(range(31, 35, 2) if queue_id else range(30, 34))


def test_a_span_of_store_times_without_its_end(root: Path) -> None:
    assert bodies(root, Wanted(since_ms=START_MS + 3, until_ms=START_MS + 6)) == numbered(
        range(2, 5)
    )


@pytest.mark.parametrize(("topic", "count"), [(None, 2), ("U", 1), ("none", 0)])
def test_a_key(root: Path, topic: str | None, count: int) -> None:
    assert len(bodies(root, Wanted(topic, key="wanted"))) == count


def as_record(fields: dict[str, Any]) -> Record:
    """A record of what stands in its JSON."""

    def host(text: str) -> bytes:
        address, _, port = text.rpartition(":")
        return host_bytes(address.strip("[]"), int(port))

    body = fields["body"].encode() if "body" in fields else b64decode(fields["bodyBase64"])
    return Record(
        fields["queueId"], fields["flag"], fields["queueOffset"],
        fields["commitLogOffset"], fields["sysFlag"], fields["bornTimestamp"],
        host(fields["bornHost"]), fields["storeTimestamp"], host(fields["storeHost"]), fields["reconsumeTimes"],
        fields["preparedTransactionOffset"], body, fields["topic"],
        "\x02".join(f"{name}\x01{value}" for name, value in fields["properties"].items()),
    )  # fmt: skip


def test_a_dump_has_all_that_is_in_the_records(root: Path) -> None:
    for data in dump(files_of(root), Wanted()):
        fields = as_json(data)
        assert as_record(fields).encode() == data
        assert fields["size"] == len(data)
        assert fields["msgId"] == decode(data).offset_message_id


def test_records_of_apache_s_broker_are_dumped_whole() -> None:
    all_of_them = list(dump(files_of(GOLDEN), Wanted()))

    assert len(all_of_them) == 44
    for data in all_of_them:
        written, read = decode(data), as_record(as_json(data))
        assert read.properties == written.properties
        assert replace(read, properties_text="") == replace(written, properties_text="", body_crc=0)


def test_a_body_that_is_no_text_is_base64(root: Path) -> None:
    (fields,) = (as_json(data) for data in dump(files_of(root), Wanted("U", 0, first=1)))

    assert fields["bodyBase64"] == "//4="
    assert fields["tags"] == "t"
    assert fields["keys"] is None
    assert fields["bornHost"] == "[fe80::1]:50000"


def test_bodies_may_be_left_out(root: Path) -> None:
    fields = as_json(next(dump(files_of(root), Wanted())), with_body=False)

    assert not {"body", "bodyBase64"} & fields.keys()


@pytest.mark.parametrize("wanted", [Wanted(), Wanted("T", 0)])
def test_what_cannot_be_read_is_skipped_and_said(root: Path, wanted: Wanted) -> None:
    at = next(
        decode(data).physical_offset for data in dump(files_of(root), Wanted("T", 0, first=3))
    )
    name, index = file_of(root, at)
    flip(root / name, index + 5)
    skipped: list[str] = []

    found = [decode(data).body for data in dump(files_of(root), wanted, skipped.append)]

    assert b"message 6" not in found
    assert b"message 8" in found
    assert len(skipped) == 1
