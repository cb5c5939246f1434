"""What Apache's own programs wrote is read here as they meant it, and written back as they wrote
it.
"""

from __future__ import annotations

import hmac
import json
import zlib
from base64 import b64encode
from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any, Final

import pytest

from roquet.common.steps import finished
from roquet.nameserver.kv_config import KvConfig
from roquet.protocol.bodies import compressed_registration
from roquet.protocol.bodies import tables as bodies
from roquet.protocol.bodies.tables import (
    ClusterInfo,
    DataVersion,
    DelayOffsetTable,
    GroupConfig,
    GroupTable,
    Heartbeat,
    OffsetTable,
    QueueLocks,
    Registration,
    Route,
    TopicTable,
)
from roquet.protocol.json.dialect import dump_bytes, dump_dialect, dump_indented, load
from roquet.protocol.records.batch import batch_item, split_batch
from roquet.protocol.records.layout import BLANK_MAGIC, MAGIC, checksum, size_and_magic
from roquet.protocol.records.message import split_properties
from roquet.protocol.records.record import Record, decode_all, host_text
from roquet.protocol.records.record import decode as decode_record
from roquet.protocol.remoting.codes import RequestCode, ResponseCode
from roquet.protocol.remoting.command import BINARY, Command, decode
from roquet.protocol.remoting.frame import FrameBuffer

ROOT: Final = Path(__file__).parent
FRAMES: Final = sorted([*ROOT.rglob("*.request.bin"), *ROOT.rglob("*.response.bin")])
RECORDS: Final = sorted(path for path in (ROOT / "records").glob("*.bin") if path.stem != "blank")
STORES: Final = sorted((ROOT / "store").glob("*/commitlog"))

Kind = Callable[[Mapping[str, Any]], Any]
REQUEST_BODIES: Final[Mapping[int, Kind]] = {
    RequestCode.HEART_BEAT: Heartbeat.from_json,
    RequestCode.LOCK_BATCH_MQ: QueueLocks.from_json,
    RequestCode.UNLOCK_BATCH_MQ: QueueLocks.from_json,
    RequestCode.REGISTER_BROKER: Registration.from_json,
    RequestCode.QUERY_DATA_VERSION: DataVersion.from_json,
    RequestCode.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP: GroupConfig.from_json,
}
RESPONSE_BODIES: Final[Mapping[int, Kind]] = {
    RequestCode.GET_ROUTEINFO_BY_TOPIC: Route.from_json,
    RequestCode.GET_BROKER_CLUSTER_INFO: ClusterInfo.from_json,
    RequestCode.GET_ALL_TOPIC_CONFIG: TopicTable.from_json,
    RequestCode.GET_ALL_SUBSCRIPTIONGROUP_CONFIG: GroupTable.from_json,
    RequestCode.GET_ALL_CONSUMER_OFFSET: OffsetTable.from_json,
    RequestCode.GET_ALL_DELAY_OFFSET: DelayOffsetTable.from_json,
    RequestCode.QUERY_DATA_VERSION: DataVersion.from_json,
}
RECORD_ANSWERS: Final = (
    RequestCode.PULL_MESSAGE,
    RequestCode.QUERY_MESSAGE,
    RequestCode.VIEW_MESSAGE_BY_ID,
)
ADDED_BY_5X: Final[Mapping[int, frozenset[str]]] = {
    RequestCode.HEART_BEAT: frozenset({"heartbeatFingerprint", "withoutSub"}),
    RequestCode.LOCK_BATCH_MQ: frozenset({"onlyThisBroker"}),
    RequestCode.UNLOCK_BATCH_MQ: frozenset({"onlyThisBroker"}),
    RequestCode.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP: frozenset(
        {
            "attributes",
            "consumeMessageOrderly",
            "consumeTimeoutMinute",
            "groupRetryPolicy",
            "groupSysFlag",
        }
    ),
}
"""The members of a 5.x program's request that no 4.x one reads or writes."""
SECRET_KEY: Final = b"golden-secret"
"""What the signed clients were given."""


def frame(path: Path) -> bytes:
    (content,) = FrameBuffer().feed(path.read_bytes())
    return content


def command(path: Path) -> Command:
    return decode(frame(path))


def is_request(path: Path) -> bool:
    return path.name.endswith(".request.bin")


def request_code(path: Path) -> int:
    """Of a response's request, too: the file's name begins with it."""
    return int(path.name.split("-")[0])


def answer_to(path: Path) -> Path:
    return path.with_name(path.name.replace(".request.", ".response."))


def of_frames(is_meant: Callable[[Path], bool]) -> list[Any]:
    return [pytest.param(path, id=str(path.relative_to(ROOT))) for path in FRAMES if is_meant(path)]


def kind_of(path: Path) -> Kind | None:
    return (REQUEST_BODIES if is_request(path) else RESPONSE_BODIES).get(request_code(path))


# frames


@pytest.mark.parametrize("path", of_frames(lambda path: True))
def test_a_frame_means_the_same_after_it_was_written_again(path: Path) -> None:
    read = command(path)

    assert decode(read.encode()[4:]) == read
    assert path.name.startswith(f"{read.code}-") or read.is_response


@pytest.mark.parametrize("path", of_frames(lambda path: command(path).header_type == BINARY))
def test_a_binary_header_is_written_byte_for_byte(path: Path) -> None:
    assert command(path).encode() == path.read_bytes()


def is_json_of_java(path: Path) -> bool:
    """Java writes its members in alphabetical order, Go does not."""
    read = command(path)
    return read.header_type != BINARY and read.language != "GO"


@pytest.mark.parametrize("path", of_frames(is_json_of_java))
def test_a_json_header_is_written_byte_for_byte_but_for_an_empty_table_of_fields(
    path: Path,
) -> None:
    written = command(path).encode()

    if b'"extFields":' in frame(path):
        assert written == path.read_bytes()
    else:
        assert written[8:].replace(b'"extFields":{},', b"", 1) == path.read_bytes()[8:]


@pytest.mark.parametrize("path", of_frames(is_request))
def test_a_request_has_an_answer_unless_its_name_says_that_it_has_none(path: Path) -> None:
    has_none = command(path).is_one_way or "-unanswered-" in path.name

    assert answer_to(path).exists() == (not has_none)


@pytest.mark.parametrize("path", of_frames(lambda path: not is_request(path)))
def test_an_answer_has_the_header_form_of_its_request_unless_its_name_says_otherwise(
    path: Path,
) -> None:
    """Apache's broker forgets it for a held pull and for a query, its 5.x client for a reply that
    it was pushed.
    """
    request = command(path.with_name(path.name.replace(".response.", ".request.")))
    answer = command(path)

    assert (answer.header_type != request.header_type) == ("-answered-in-" in path.name)


# signatures


@pytest.mark.parametrize("path", of_frames(lambda path: "Signature" in command(path).fields))
def test_a_signature_is_that_of_all_fields_and_the_body_as_they_were_read(path: Path) -> None:
    read = command(path)
    signed = (
        "".join(
            value for name, value in sorted(read.fields.items()) if name != "Signature"
        ).encode()
        + read.body
    )

    assert b64encode(hmac.digest(SECRET_KEY, signed, "sha1")).decode() == read.fields["Signature"]


@pytest.mark.parametrize(
    "path", of_frames(lambda path: is_request(path) and path.parent.name.startswith("signed-"))
)
def test_a_client_with_keys_signs_all_it_says(path: Path) -> None:
    is_of_client = request_code(path) != RequestCode.NOTIFY_CONSUMER_IDS_CHANGED

    assert ("Signature" in command(path).fields) == is_of_client


# bodies


def is_compressed(path: Path) -> bool:
    """Only a registration may be."""
    return command(path).fields.get("compressed") == "true"


def is_json_body(path: Path) -> bool:
    return kind_of(path) is not None and bool(command(path).body) and not is_compressed(path)


@pytest.mark.parametrize("path", of_frames(is_json_body))
def test_a_json_body_is_read_and_written_as_an_equal_document(path: Path) -> None:
    kind = kind_of(path)
    assert kind is not None
    document = load(command(path).body)

    written = load(dump_dialect(bodies.parse(command(path).body, kind).to_json()))

    is_of_5x = is_request(path) and path.parent.name.endswith("-5.5.0")
    added = ADDED_BY_5X[request_code(path)] if is_of_5x else frozenset[str]()
    assert document.keys() - written.keys() == added
    assert canonical(written) == canonical(
        {key: value for key, value in document.items() if key not in added}
    )


def canonical(document: Any) -> Any:
    """Sets come in any order, and Go's codes as text."""
    if isinstance(document, dict):
        return {
            key: sorted(map(int, value)) if key == "codeSet" else canonical(value)
            for key, value in document.items()
        }
    if isinstance(document, list):
        return sorted(map(canonical, document), key=lambda item: json.dumps(item, sort_keys=True))
    return document


@pytest.mark.parametrize("path", of_frames(is_compressed))
def test_a_compressed_registration_says_what_its_json_twin_says(path: Path) -> None:
    body = command(path).body
    twin = bodies.parse(
        command(path.with_name(path.name.replace("-compressed", ""))).body, Registration.from_json
    )

    read = finished(compressed_registration.read(body))

    assert (read.table.topics, read.filter_servers) == (twin.table.topics, twin.filter_servers)
    assert read.table.version.counter == twin.table.version.counter
    assert read.table.topics
    assert zlib.decompress(finished(compressed_registration.written(read))) == zlib.decompress(body)


@pytest.mark.parametrize(
    "path",
    of_frames(lambda path: is_request(path) and request_code(path) == RequestCode.REGISTER_BROKER),
)
def test_a_registrations_checksum_is_that_of_its_body_as_sent(path: Path) -> None:
    read = command(path)

    assert int(read.fields["bodyCrc32"]) == checksum(read.body)


def carries_records(path: Path) -> bool:
    is_answer = not is_request(path) and request_code(path) in RECORD_ANSWERS
    is_check = request_code(path) == RequestCode.CHECK_TRANSACTION_STATE
    return (is_answer or is_check) and bool(command(path).body)


@pytest.mark.parametrize("path", of_frames(carries_records))
def test_records_in_a_body_are_written_byte_for_byte(path: Path) -> None:
    body = command(path).body

    assert b"".join(record.encode() for record in decode_all(body)) == body


def is_batch(path: Path) -> bool:
    return is_request(path) and request_code(path) == RequestCode.SEND_BATCH_MESSAGE


@pytest.mark.parametrize("path", of_frames(is_batch))
def test_a_batch_is_written_byte_for_byte(path: Path) -> None:
    read = command(path)
    messages = list(split_batch(read.body))
    stored = command(answer_to(path)).fields["msgId"].split(",")

    assert b"".join(batch_item(*message) for message in messages) == read.body
    assert len(messages) == len(stored) > 1
    has_key = ["UNIQ_KEY" in split_properties(properties.decode()) for _, _, properties in messages]
    assert has_key == [read.language != "GO"] * len(
        stored
    )  # Go gives the messages of a batch no keys


@pytest.mark.parametrize(
    "path",
    of_frames(
        lambda path: path.name.startswith("105-get-route-no-topic") and "response" in path.name
    ),
)
def test_a_topic_without_a_route_is_answered_with_its_code(path: Path) -> None:
    assert command(path).code == ResponseCode.TOPIC_NOT_EXIST


# records


@pytest.mark.parametrize("path", RECORDS, ids=lambda path: path.stem)
def test_a_record_is_written_byte_for_byte(path: Path) -> None:
    data = path.read_bytes()

    assert decode_record(data, verify=True).encode() == data


def test_a_blank_is_known_by_its_magic() -> None:
    data = (ROOT / "records" / "blank.bin").read_bytes()

    assert size_and_magic(data, 0)[1] == BLANK_MAGIC


def records_of(log: Path) -> Iterator[tuple[int, Record]]:
    """Every record in a commit log with its size."""
    for path in sorted(log.iterdir()):
        data, at = path.read_bytes(), 0
        while at + 8 <= len(data):
            size, magic = size_and_magic(data, at)
            if magic != MAGIC:
                break
            yield size, decode_record(data, at, verify=True)
            at += size


@pytest.mark.parametrize("log", STORES, ids=lambda log: log.parent.name)
def test_a_commit_log_is_written_byte_for_byte(log: Path) -> None:
    data = b"".join(path.read_bytes() for path in sorted(log.iterdir()))

    for size, record in records_of(log):
        assert record.encode() == data[record.physical_offset : record.physical_offset + size]


@pytest.mark.parametrize("log", STORES, ids=lambda log: log.parent.name)
def test_records_stand_where_they_say_they_stand(log: Path) -> None:
    starts = {int(path.name) for path in log.iterdir()}
    ends = {record.physical_offset + size for size, record in records_of(log)}

    assert all(record.physical_offset in starts | ends for _, record in records_of(log))


READ_BY_APACHE: Final = ROOT / "store" / "clean" / "read.json"


@pytest.mark.skipif(not READ_BY_APACHE.exists(), reason="not captured")
def test_records_are_read_as_apaches_client_read_them() -> None:
    found = {
        record.offset_message_id: (size, record)
        for size, record in records_of(READ_BY_APACHE.parent / "commitlog")
    }
    lines = [line for run in json.loads(READ_BY_APACHE.read_bytes()) for line in run["lines"]]
    assert lines

    for line in lines:
        size, record = found[line["offsetMsgId"]]
        assert apaches_view(size, record).items() <= line.items()
        assert (
            record.properties.items()
            <= {**line["properties"], **local_changes(record, line)}.items()
        )


def apaches_view(size: int, record: Record) -> dict[str, Any]:
    return {
        "queueId": record.queue_id,
        "queueOffset": record.queue_offset,
        "commitLogOffset": record.physical_offset,
        "storeSize": size,
        "flag": record.flag,
        "sysFlag": record.sys_flag,
        "bornTimestamp": record.born_ms,
        "storeTimestamp": record.store_ms,
        "bornHost": "/" + host_text(record.born_host),
        "storeHost": "/" + host_text(record.store_host),
        "reconsumeTimes": record.reconsume_times,
        "preparedTransactionOffset": record.prepared_offset,
    }


def local_changes(record: Record, line: Mapping[str, Any]) -> dict[str, str]:
    """A consumer gives a retried message its topic back and drops the mark that said so."""
    return {
        name: record.properties[name]
        for name in ("RETRY_TOPIC", "DELAY")
        if name in record.properties
    }


def is_told(line: Mapping[str, Any]) -> bool:
    """A transaction's producer is not told where the half message went; what is checked later was
    never told.
    """
    return "checked" not in line and line["offsetMsgId"] is not None


def assert_stored_as_told(told: Path, records: Iterable[Record]) -> None:
    found = {record.offset_message_id: record for record in records}
    lines = [
        line for run in json.loads(told.read_bytes()) for line in run["lines"] if is_told(line)
    ]
    assert lines

    for line in lines:
        ids = zip(line["offsetMsgId"].split(","), line["msgId"].split(","), strict=True)
        for nth, (offset_id, unique_key) in enumerate(ids):
            record = found[offset_id]
            assert record.properties["UNIQ_KEY"] == unique_key
            assert int(record.properties.get("REAL_QID", record.queue_id)) == line["queueId"]
            assert record.queue_offset == line["queueOffset"] + nth


@pytest.mark.parametrize("log", STORES, ids=lambda log: log.parent.name)
def test_records_are_those_that_apaches_producers_were_told_of(log: Path) -> None:
    assert_stored_as_told(log.parent / "sent.json", (record for _, record in records_of(log)))


def test_the_record_with_ipv6_hosts_is_the_one_that_its_producer_was_told_of() -> None:
    record = decode_record((ROOT / "records" / "ipv6.bin").read_bytes())

    assert_stored_as_told(ROOT / "records" / "ipv6.json", [record])
    assert host_text(record.store_host).startswith("[::1]:")


# files


TABLES: Final[Mapping[str, Kind]] = {
    "topics.json": TopicTable.from_json,
    "subscriptionGroup.json": GroupTable.from_json,
    "consumerOffset.json": OffsetTable.from_json,
    "delayOffset.json": DelayOffsetTable.from_json,
}


@pytest.mark.parametrize(
    "path",
    sorted((ROOT / "store").glob("*/config/*.json")),
    ids=lambda path: f"{path.parts[-3]}/{path.name}",
)
def test_a_table_on_disk_is_written_byte_for_byte(path: Path) -> None:
    kind = TABLES.get(path.name)
    document = (
        load(path.read_bytes()) if kind is None else bodies.parse(path.read_bytes(), kind).to_json()
    )

    assert dump_indented(document) == path.read_bytes()


def test_the_name_servers_table_on_disk_is_written_byte_for_byte() -> None:
    path = ROOT / "store" / "name-server" / "kvConfig.json"

    assert (
        dump_bytes(bodies.parse(path.read_bytes(), KvConfig.from_json).to_json())
        == path.read_bytes()
    )
