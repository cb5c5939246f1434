"""The exchange of docs/storage/replication.md#example, seen with Apache's slave, byte for byte."""

from __future__ import annotations

import pytest

from roquet.replication import master, slave
from tests.replication.ends import MasterEnd, SlaveEnd
from tests.replication.memory_log import MemoryLog

MIB = 1024 * 1024
RECORDS = bytes(range(251)) * 3
FIRST, SECOND = RECORDS[:267], RECORDS[267:535]


@pytest.fixture
def log() -> MemoryLog:
    """A master's log in whose fourth file the first piece of the records stands."""
    return MemoryLog(MIB, bytes(3 * MIB) + FIRST)


def hexed(data: bytes, body: bytes = b"") -> str:
    """`data` in hex, without the body that it must end with."""
    assert data.endswith(body)
    return data[: len(data) - len(body)].hex()


def test_the_master_sends_what_the_slave_understood(log: MemoryLog) -> None:
    end = MasterEnd(log)
    first_report = bytes.fromhex("0000000000000000")
    assert hexed(end.hear(first_report, 5_010), FIRST) == "00000000003000000000010b"
    end.flush(5_010)
    log.append(SECOND)
    assert end.hear(bytes.fromhex("000000000030010b"), 5_010) == end_of_second()
    end.flush(5_010)
    assert end.feed(master.Tick(), 10_010).hex() == "000000000030021700000000"
    assert end.hear(bytes.fromhex("0000000000300217"), 10_030) == b""
    assert end.acks == [0, 0x30010B, 0x300217]


def end_of_second() -> bytes:
    return bytes.fromhex("000000000030010b0000010c") + SECOND


def test_the_slave_answers_what_the_master_understood() -> None:
    end = SlaveEnd(MemoryLog(MIB))
    assert end.connect(0).hex() == "0000000000000000"
    assert (
        end.hear(bytes.fromhex("00000000003000000000010b") + FIRST, 5_010).hex()
        == "000000000030010b"
    )
    assert end.hear(end_of_second(), 5_010).hex() == "0000000000300217"
    assert end.hear(bytes.fromhex("000000000030021700000000"), 5_020) == b""
    assert end.feed(slave.Tick(), 10_030).hex() == "0000000000300217"
    assert end.log.start == 3 * MIB
    assert bytes(end.log.read(end.log.start, MIB)) == FIRST + SECOND


def test_a_heartbeat_with_a_wrong_offset_ends_it() -> None:
    end = SlaveEnd(MemoryLog(MIB, FIRST + SECOND, start=3 * MIB), slave.Rules(overlap_size=0))
    assert end.connect(0).hex() == "0000000000300217"
    assert end.hear(bytes.fromhex("000000000030021f00000000"), 10_030) == b""
    assert not end.is_open
    assert (
        end.follower.reason
        == "a gap: the master goes on at 3146271, we have everything before 3146263"
    )
