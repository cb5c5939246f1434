"""What Apache's master and slave said to each other, each of them replaced by ours
(tests/golden/ha).
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from roquet.replication import master, slave
from roquet.replication.frames import (
    REPORT,
    Chunk,
    ChunkStream,
    HeartbeatFrame,
    ReportStream,
    header,
    report,
)
from tests.replication.ends import MasterEnd, SlaveEnd
from tests.replication.memory_log import MemoryLog

GOLDEN = Path(__file__).parent.parent / "golden" / "ha"
FILE_SIZE = 16_384
LAST_FILE = 32_768
"""Where the last file of the master's log starts."""
WITHOUT_OVERLAP = slave.Rules(overlap_size=0)


def master_log(end: int) -> MemoryLog:
    """The Apache master's log as it was when it ended there."""
    files = sorted((GOLDEN / "master" / "commitlog").iterdir())
    return MemoryLog(FILE_SIZE, b"".join(file.read_bytes() for file in files)[:end])


def pieces(name: str) -> Iterator[tuple[int, str, bytes]]:
    """When, who and what, in the order in which it passed."""
    streams = {"slave": "slave-to-master.bin", "master": "master-to-slave.bin"}
    left = {who: (GOLDEN / name / file).read_bytes() for who, file in streams.items()}
    for piece in json.loads((GOLDEN / name / "timeline.json").read_text()):
        who, size = piece["from"], piece["size"]
        yield piece["at_ms"], who, left[who][:size]
        left[who] = left[who][size:]


def said(name: str, by: str) -> bytes:
    return b"".join(data for _, who, data in pieces(name) if who == by)


def reports(data: bytes) -> list[int]:
    return [offset for (offset,) in REPORT.iter_unpack(data)]


@pytest.mark.parametrize("name", ["fresh", "resumed"])
@pytest.mark.parametrize("part", ["first-report", "acknowledgement", "heartbeat-of-slave"])
def test_a_recorded_report_is_read_and_written_byte_for_byte(name: str, part: str) -> None:
    data = (GOLDEN / name / f"{part}.bin").read_bytes()
    offset = ReportStream().feed(data)
    assert offset is not None
    assert report(offset) == data


@pytest.mark.parametrize("name", ["fresh", "resumed"])
def test_what_a_recorded_master_says_is_read_and_written_byte_for_byte(name: str) -> None:
    idle, news = (
        (GOLDEN / name / f"{part}.bin").read_bytes() for part in ("heartbeat-of-master", "chunk")
    )
    (heartbeat,) = ChunkStream().feed(idle)
    (chunk,) = ChunkStream().feed(news)
    assert isinstance(heartbeat, HeartbeatFrame)
    assert header(heartbeat.at, 0) == idle
    assert isinstance(chunk, Chunk)
    assert header(chunk.at, len(chunk.data)) + chunk.data == news
    assert chunk.data == master_log(2**31).content[chunk.at : chunk.at + len(chunk.data)]


def our_master(name: str, log: MemoryLog) -> tuple[bytes, list[int]]:
    """What our master says to Apache's slave, and what it takes as acknowledged.

    Its log grows when the recorded one did: before each chunk.
    """
    whole, stream = master_log(2**31).content, ChunkStream()
    end, sent, last_ms = MasterEnd(log), b"", 0
    for at_ms, who, data in pieces(name):
        last_ms = at_ms
        if who == "slave":
            sent += end.hear(data, at_ms)
            continue
        for frame in stream.feed(data):
            if isinstance(frame, Chunk) and frame.at == log.end:
                log.append(bytes(whole[frame.at : frame.at + len(frame.data)]))
                sent += end.look(at_ms)
            sent += end.flush(at_ms)
    assert end.reason == ""
    sent += end.feed(master.Tick(), last_ms + 5_000)
    return sent, [int(offset) for offset in end.acks]


def test_our_master_gives_an_empty_apache_slave_what_apaches_does() -> None:
    """Apache's says first that it is there, as five seconds went by since the accept; ours has
    bytes to send.
    """
    sent, acks = our_master("fresh", master_log(35_547))
    assert header(LAST_FILE, 0) + sent == said("fresh", "master")
    assert acks == [0, 32_768, 35_547, 35_891, 36_063]


def test_our_master_continues_with_an_apache_slave_where_apaches_does() -> None:
    sent, acks = our_master("resumed", master_log(36_923))
    assert header(36_063, 0) + sent == said("resumed", "master")
    assert acks == [36_063, 36_923]


def test_our_master_without_bytes_for_an_empty_apache_slave_tells_it_where_they_will_come() -> None:
    """Then the heartbeat is what the slave makes its first file by; it reports that file's
    start.
    """
    log = MemoryLog(FILE_SIZE, bytes(LAST_FILE))
    end = MasterEnd(log)
    first, made, *_ = reports(said("fresh", "slave"))
    assert end.hear(report(first), 5_034) == b""
    assert end.feed(master.Tick(), 5_034) == said("fresh", "master")[: len(header(LAST_FILE, 0))]
    assert end.hear(report(made), 5_053) == b""
    assert end.flush(5_053) == b""
    log.append(bytes(master_log(35_547).content[LAST_FILE:]))
    assert end.look(7_000) == (GOLDEN / "fresh" / "chunk.bin").read_bytes()
    assert ([int(offset) for offset in end.acks], end.reason) == ([0, 32_768], "")


def our_slave(name: str, log: MemoryLog, rules: slave.Rules) -> tuple[list[int], SlaveEnd]:
    """What our slave reports to Apache's master."""
    end = SlaveEnd(log, rules)
    sent = end.connect(0)
    for at_ms, who, data in pieces(name):
        if who == "master":
            sent += end.hear(data, at_ms)
    return reports(sent), end


def test_our_empty_slave_copies_from_an_apache_master() -> None:
    """Apache's slave also reports the start of the file that it makes before any byte for it has
    come.
    """
    log = MemoryLog(FILE_SIZE)
    reported, end = our_slave("fresh", log, slave.Rules())
    assert reported == [0, 35_547, 35_891, 36_063]
    assert set(reports(said("fresh", "slave"))) - set(reported) == {32_768}
    assert end.follower.reason == ""
    assert log.content == master_log(36_063).content[LAST_FILE:]


def test_our_slave_continues_behind_an_apache_master_and_ends_with_the_same_log() -> None:
    log = MemoryLog(FILE_SIZE, bytes(master_log(36_063).content[LAST_FILE:]), start=LAST_FILE)
    reported, end = our_slave("resumed", log, WITHOUT_OVERLAP)
    assert reported == [36_063, 36_923]
    assert end.follower.reason == ""
    apaches = (GOLDEN / "slave" / "commitlog" / "00000000000000032768").read_bytes()
    assert log.content == apaches[: len(log.content)]
    assert not any(apaches[len(log.content) :])


def test_our_slave_with_part_of_the_last_file_compares_it_with_what_an_apache_master_begins_with() -> (
    None
):
    """It asks from its file's start on, as an empty slave is served: a heartbeat first, then all of
    the file.
    """
    log = MemoryLog(FILE_SIZE, bytes(master_log(34_768).content[LAST_FILE:]), start=LAST_FILE)
    reported, end = our_slave("fresh", log, slave.Rules())
    assert reported == [32_768, 35_547, 35_891, 36_063]
    assert end.follower.reason == ""
    assert log.content == master_log(36_063).content[LAST_FILE:]


def test_our_slave_whose_bytes_are_others_than_an_apache_masters_stops() -> None:
    own = bytearray(master_log(34_768).content[LAST_FILE:])
    own[1_000] ^= 1
    log = MemoryLog(FILE_SIZE, bytes(own), start=LAST_FILE)
    reported, end = our_slave("fresh", log, slave.Rules())
    assert reported == [32_768]
    assert end.follower.phase is slave.Phase.STOPPED
    assert "the bytes at offset 33768 differ" in end.follower.reason
    assert log.content == own
