"""Message ids have Apache's layout, since tools take them apart."""

from __future__ import annotations

import random
import time
from collections.abc import Iterator

import pytest
from hypothesis import given
from hypothesis import strategies as st

from roquet.client._send.unique_key import UniqueKeys, month_of

NOW_MS = 1_795_226_000_000
JAVA_KEY = "FD00000000000000000000000000000244C84E0E2F2A676906EA0000"
"""Made by Apache's client 4.9.7 on a host with an IPv6 address."""


def keys(address: bytes = b"\x7f\x00\x00\x01", now_ms: int = NOW_MS) -> UniqueKeys:
    return UniqueKeys(address, lambda: now_ms, random.Random(1))


@pytest.fixture(params=["UTC", "Asia/Shanghai", "America/New_York"])
def _time_zone(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    with monkeypatch.context() as patched:
        patched.setenv("TZ", request.param)
        time.tzset()
        yield
    time.tzset()


def test_an_id_is_upper_case_hex_of_java_s_length() -> None:
    assert len(keys().next()) == 32
    assert len(keys(bytes(16)).next()) == len(JAVA_KEY)
    assert keys().next().startswith("7F000001")
    assert keys().next() == keys().next().upper()


def test_the_counter_makes_ids_of_one_millisecond_differ() -> None:
    made = keys()
    assert len({made.next() for _ in range(65_536)}) == 65_536


def test_two_clients_on_one_host_make_different_ids() -> None:
    one, other = (UniqueKeys(bytes(4), lambda: NOW_MS, random.Random(seed)) for seed in (1, 2))
    assert one.next() != other.next()


@pytest.mark.usefixtures("_time_zone")
def test_the_time_in_an_id_counts_from_the_first_of_the_month() -> None:
    start_ms, end_ms = month_of(NOW_MS)
    assert time.strftime("%d %H:%M:%S", time.localtime(start_ms / 1000)) == "01 00:00:00"
    assert time.strftime("%d %H:%M:%S", time.localtime(end_ms / 1000)) == "01 00:00:00"
    assert start_ms <= NOW_MS < end_ms
    assert int(keys().next()[20:28], 16) == NOW_MS - start_ms


@pytest.mark.usefixtures("_time_zone")
@given(st.integers(0, 4 * 10**12))
def test_the_time_can_be_read_back(now_ms: int) -> None:
    start_ms, _ = month_of(now_ms)
    assert start_ms + int(keys(now_ms=now_ms).next()[20:28], 16) == now_ms


def test_a_clock_set_back_across_the_month_gives_no_time_in_the_future() -> None:
    start_ms, _ = month_of(NOW_MS)
    now_ms = start_ms + 5
    made = UniqueKeys(bytes(4), lambda: now_ms, random.Random(1))
    made.next()
    now_ms = start_ms - 5
    assert int(made.next()[20:28], 16) == 0
