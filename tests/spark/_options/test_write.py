"""What a write can be told, and what is said of what it cannot."""

from __future__ import annotations

import pytest

from roquet.errors import OptionError
from roquet.spark._options.write import DeliveryGuarantee, WriteOptions


def test_options_come_in_any_case_with_usual_values_for_the_rest() -> None:
    options = WriteOptions.of(
        {"nameserver": "ns:1", "TOPIC": "orders", "delivery": "Effectively-Once", "retries": "0"}
    )
    assert options == WriteOptions(
        "ns:1", "orders", delivery=DeliveryGuarantee.EFFECTIVELY_ONCE, retries=0
    )
    assert WriteOptions("ns:1").delivery is DeliveryGuarantee.AT_LEAST_ONCE


def test_every_option_has_its_field() -> None:
    options = WriteOptions.of(
        {
            "nameServer": "a:1,b:2",
            "producerGroup": "shop",
            "sendTimeoutMs": "5",
            "compressFromBytes": "4096",
            "batchRows": "7",
            "batchBytes": "1000",
            "failOnUnsafe": "true",
            "checkpointLocation": "/somewhere",
        }
    )
    assert options == WriteOptions(
        "a:1;b:2",
        group="shop",
        timeout_ms=5,
        compress_from_size=4096,
        batch_rows=7,
        batch_size=1000,
        fail_on_unsafe=True,
    )


@pytest.mark.parametrize(
    ("given", "words"),
    [
        ({"topic": "orders"}, "nameServer is missing"),
        ({"nameServer": "ns:1", "delivry": "x"}, "did you mean delivery?"),
        (
            {"nameServer": "ns:1", "delivery": "exactly-once"},
            "none of at-least-once, effectively-once",
        ),
        ({"nameServer": "ns:1", "topic": "a b"}, "topic: topic name 'a b'"),
        ({"nameServer": "ns:1", "producerGroup": "a b"}, "producerGroup: group name"),
        ({"nameServer": "ns:1", "retries": "-1"}, "retries: '-1' is no whole number"),
        ({"nameServer": "ns:1", "retries": "9" * 5000}, "99' is no whole number"),
        ({"nameServer": "ns:1", "batchRows": "0"}, "batchRows: '0' is no whole number above 0"),
        ({"nameServer": "ns:1", "batchBytes": "5000000"}, "5000000 is above 4194304 bytes"),
    ],
)
def test_what_is_wrong_is_said(given: dict[str, str], words: str) -> None:
    with pytest.raises(OptionError) as error:
        WriteOptions.of(given)
    assert words in str(error.value)
