"""The text of trace records. The expected ones were written by the encoder of Apache's 4.9.7."""

from __future__ import annotations

import pytest

from roquet.client._send.trace_records import (
    DeliveredRecord,
    MessageKind,
    Outcome,
    SentRecord,
    SettledRecord,
    TracedMessage,
    TraceRecord,
    TransactionRecord,
)
from roquet.protocol.headers.transactions import COMMIT, ROLLBACK, UNKNOWN
from roquet.protocol.records.message import DELAY, TRAN_MSG

TIME = 1_700_000_000_000
REGION = "DefaultRegion"
AT = "10.0.1.1:10911"
FULL = TracedMessage("T", "ID", "a", "k1 k2")
BARE = TracedMessage("T", "ID", None, None)
NORMAL, HALF, _, DELAYED = MessageKind


@pytest.mark.parametrize(
    ("record", "text"),
    [
        (
            SentRecord(TIME, REGION, "G", FULL, AT, 5, 12, NORMAL, "OID", True),
            "Pub|1700000000000|DefaultRegion|G|T|ID|a|k1 k2|10.0.1.1:10911|5|12|0|OID|true",
        ),
        (
            SentRecord(TIME, REGION, "G", BARE, AT, 5, 12, HALF, "OID", False),
            "Pub|1700000000000|DefaultRegion|G|T|ID|null|null|10.0.1.1:10911|5|12|1|OID|false",
        ),
        (
            DeliveredRecord(TIME, REGION, "G", "R1", FULL, 3),
            "SubBefore|1700000000000|DefaultRegion|G|R1|ID|3|k1 k2",
        ),
        (
            DeliveredRecord(TIME, None, "G", "R1", BARE, 3),
            "SubBefore|1700000000000|null|G|R1|ID|3|null",
        ),
        (
            SettledRecord("R1", FULL, 5, Outcome.ACKNOWLEDGED, TIME, "G"),
            "SubAfter|R1|ID|5|true|k1 k2|0|1700000000000|G",
        ),
        (
            SettledRecord("R1", BARE, 5, Outcome.FAILED, TIME, "G"),
            "SubAfter|R1|ID|5|false|null|4|1700000000000|G",
        ),
        (
            TransactionRecord(TIME, REGION, "G", FULL, AT, "ID", COMMIT, False),
            "EndTransaction|1700000000000|DefaultRegion|G|T|ID|a|k1 k2|10.0.1.1:10911|2|ID"
            "|COMMIT_MESSAGE|false",
        ),
        (
            TransactionRecord(TIME, REGION, "G", FULL, AT, "ID", UNKNOWN, True),
            "EndTransaction|1700000000000|DefaultRegion|G|T|ID|a|k1 k2|10.0.1.1:10911|2|ID"
            "|UNKNOW|true",
        ),
        (
            TransactionRecord(TIME, REGION, "G", FULL, AT, "ID", ROLLBACK, False),
            "EndTransaction|1700000000000|DefaultRegion|G|T|ID|a|k1 k2|10.0.1.1:10911|2|ID"
            "|ROLLBACK_MESSAGE|false",
        ),
    ],
)
def test_a_record_is_what_apache_s_client_writes(record: TraceRecord, text: str) -> None:
    assert record.text == text.replace("|", "\x01") + "\x02"


def test_a_message_is_found_by_its_id_and_by_each_of_its_keys() -> None:
    assert FULL.words == ("ID", "k1", "k2")
    assert BARE.words == ("ID",)


@pytest.mark.parametrize(
    ("properties", "kind"),
    [
        ({}, NORMAL),
        ({TRAN_MSG: "true"}, HALF),
        ({TRAN_MSG: "false"}, NORMAL),
        ({DELAY: "3"}, DELAYED),
        ({TRAN_MSG: "true", DELAY: "3"}, DELAYED),
    ],
)
def test_the_kind_of_a_message_is_in_its_properties(
    properties: dict[str, str], kind: MessageKind
) -> None:
    assert MessageKind.of(properties) is kind
