"""Compressed registrations: Apache's bytes are read and written, in steps and with bounds."""

from __future__ import annotations

import json
import random
import zlib
from contextlib import suppress
from typing import Final

import pytest
from hypothesis import given
from hypothesis import strategies as st

from roquet.common.steps import PART, Steps, finished
from roquet.protocol.bodies.compressed_registration import SIZE_MIN, SIZE_RATIO, read, written
from roquet.protocol.bodies.tables import DataVersion, Registration, TopicConfig, TopicTable
from tests.protocol.strategies import registrations

VERSION: Final = b'{"counter":5,"timestamp":1700000000000}'


@given(registrations)
def test_a_compressed_registration_loses_order_and_sys_flag_only(
    registration: Registration,
) -> None:
    body = finished(written(registration))

    again = finished(read(body))

    assert body.startswith(b"\x78\xda")
    assert again.table.version == registration.table.version
    assert again.filter_servers == registration.filter_servers
    assert {name: plain(topic) for name, topic in registration.table.topics.items()} == dict(
        again.table.topics
    )


def plain(topic: TopicConfig) -> TopicConfig:
    return TopicConfig(
        topic.name, topic.read_queues, topic.write_queues, topic.perm, topic.filter_type
    )


def compressed(*parts: bytes) -> bytes:
    return zlib.compress(b"".join(parts), 9)


def sized(data: bytes) -> bytes:
    return len(data).to_bytes(4, "big", signed=True) + data


ONE = (1).to_bytes(4, "big")


def test_the_compressed_form_is_apaches() -> None:
    body = compressed(sized(VERSION), ONE, sized(b"T 4 4 6 SINGLE_TAG"), sized(b"[]"))
    registration = Registration(
        TopicTable({"T": TopicConfig("T", 4, 4)}, DataVersion(1700000000000, 5))
    )

    assert finished(read(body)) == registration
    assert finished(written(registration)) == body


def test_the_sixth_word_of_5x_is_ignored() -> None:
    body = compressed(sized(VERSION), ONE, sized(b'T 4 4 6 SINGLE_TAG {"+a": "b c"}'), sized(b"[]"))

    assert list(finished(read(body)).table.topics.values()) == [TopicConfig("T", 4, 4)]


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"garbage",
        compressed(b"")[:-1],
        compressed(b""),
        compressed(sized(b"{}")),
        compressed(sized(b"{}"), ONE),
        compressed(sized(b"{}"), ONE, sized(b"T 4 4"), sized(b"[]")),
        compressed(sized(b"{}"), ONE, sized(b"T a b 6 SINGLE_TAG"), sized(b"[]")),
        compressed(sized(b"{}"), ONE, sized(b"\xff"), sized(b"[]")),
        compressed(sized(b"[]"), bytes(4), sized(b"[]")),
        compressed(sized(b"{"), bytes(4), sized(b"[]")),
        compressed(sized(b"{}"), bytes(4), sized(b"7")),
        compressed(b"\xff\xff\xff\xff"),
        compressed(b"\x7f\xff\xff\xff"),
    ],
)
def test_another_compressed_body_is_refused(body: bytes) -> None:
    with pytest.raises(ValueError, match=r"\w"):
        finished(read(body))


def test_a_registration_that_grows_out_of_proportion_is_refused() -> None:
    body = compressed(bytes(8 * 1024 * 1024))
    work = read(body)

    with pytest.raises(ValueError, match="larger than"):
        finished(work)

    assert SIZE_MIN + 64 * len(body) < 2 * 1024 * 1024


@given(st.binary(max_size=100))
def test_any_inflated_bytes_are_a_registration_or_refused(raw: bytes) -> None:
    with suppress(ValueError):
        finished(read(zlib.compress(raw)))


def test_thousands_of_topics_are_read_and_written_in_short_steps() -> None:
    topics = {f"T{at}": TopicConfig(f"T{at}") for at in range(100 * PART)}
    registration = Registration(TopicTable(topics))
    body = finished(written(registration))

    assert finished(read(body)) == registration
    assert count_steps(written(registration)) == 100
    assert count_steps(read(body)) > 100


def count_steps(work: Steps[object]) -> int:
    return sum(1 for _ in work)


def test_of_two_topics_of_a_name_the_last_one_counts() -> None:
    body = compressed(
        sized(b"{}"),
        (2).to_bytes(4, "big"),
        sized(b"T 4 4 6 SINGLE_TAG"),
        sized(b"T 8 8 6 SINGLE_TAG"),
        sized(b"[]"),
    )

    assert finished(read(body)).table.topics == {"T": TopicConfig("T", 8, 8)}


@pytest.mark.parametrize("servers", [b"[]", b"null", b'["10.0.0.1:7", "10.0.0.2:7"]'])
def test_filter_servers_are_a_list_or_missing(servers: bytes) -> None:
    body = compressed(sized(b"{}"), bytes(4), sized(servers))

    assert finished(read(body)).filter_servers == tuple(json.loads(servers) or ())


def test_what_stands_behind_the_registration_is_ignored() -> None:
    body = compressed(sized(b"{}"), bytes(4), sized(b"[]"), b"more") + b"more"

    assert finished(read(body)) == Registration()


@pytest.mark.parametrize(
    ("body", "reason"),
    [
        (b"", "cut short"),
        (b"garbage", "compressed registration: .*incorrect header"),
        (zlib.compress(b"x" * 50_000)[:-5], "cut short"),
        (compressed(bytes(3)), "compressed registration: unpack_from requires"),
        (compressed(sized(b"{}")), "compressed registration: unpack_from requires"),
        (compressed(b"\xff\xff\xff\xff"), "a part of -1 bytes at 0 of 4"),
        (compressed(b"\0\0\0\x09{}"), "a part of 9 bytes at 0 of 6"),
        (
            compressed(sized(b"{}"), ONE, sized(b"T 4 4 2147483648 SINGLE_TAG"), sized(b"[]")),
            "2147483648",
        ),
    ],
)
def test_a_refusal_says_what_is_wrong(body: bytes, reason: str) -> None:
    with pytest.raises(ValueError, match=reason):
        finished(read(body))


def test_it_may_grow_up_to_the_bound_and_no_further() -> None:
    servers = sized(b'["%b"]' % (b"x" * (65_536 - 4)))
    assert (
        len(finished(read(compressed(sized(b"{}"), bytes(4), servers))).filter_servers[0]) == 65_532
    )
    with pytest.raises(ValueError, match="filter servers of 65537 bytes"):
        finished(read(compressed(sized(b"{}"), bytes(4), sized(b'["%b"]' % (b"x" * 65_533)))))


def test_a_large_registration_may_be_larger_than_a_small_one_that_grows() -> None:
    """The bound is a sum: a part for any registration, and a ratio for large ones."""
    noise = random.Random(1).randbytes(20_000)
    body = compressed(sized(b"{}"), bytes(4), sized(b"[]"), noise, bytes(SIZE_MIN))

    assert SIZE_MIN < SIZE_MIN + len(noise) < SIZE_MIN + SIZE_RATIO * len(body)
    assert finished(read(body)) == Registration()
