"""What replication reads of a log: bytes across segments, and only what slaves may have."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from roquet.replication.log import VisibleLog, bytes_between
from tests.replication.memory_log import MemoryLog
from tests.storetool.stores import LOG_FILE, Broker

CONTENT = bytes(range(250))


@given(st.integers(0, 3), st.integers(0, 250), st.integers(0, 250))
def test_bytes_are_read_across_segments(files: int, first: int, last: int) -> None:
    begin = files * 64
    log = MemoryLog(64, CONTENT, begin)
    start, end = sorted((first, last))

    assert bytes_between(log, begin + start, begin + end) == CONTENT[start:end]


def test_nothing_lies_between_an_end_and_what_is_before_it() -> None:
    assert bytes_between(MemoryLog(64, CONTENT), 20, 10) == b""


def test_bytes_that_the_log_does_not_have_are_an_error() -> None:
    with pytest.raises(AssertionError, match=r"no byte at 250, but begins at 0 and ends at 250"):
        bytes_between(MemoryLog(64, CONTENT), 240, 260)


def test_slaves_may_have_what_a_crash_does_not_take_back(tmp_path: Path) -> None:
    broker = Broker(tmp_path, reads_only_durable=True)
    places = broker.fill(3)
    log = VisibleLog(broker.store)
    whole = broker.store.log

    assert (log.file_size, log.start, log.end) == (LOG_FILE, 0, 0)
    whole.synced(places[2])

    assert log.end == places[2] < whole.end
    assert log.read(0, 1 << 20) == whole.read(0, places[2])
    assert log.read(places[1], 10) == whole.read(places[1], 10)
    assert log.read(places[2], 10) == b""
    broker.die()


def test_slaves_may_have_all_that_is_written_if_consumers_may(tmp_path: Path) -> None:
    broker = Broker(tmp_path)
    broker.fill(3)

    assert VisibleLog(broker.store).end == broker.store.log.end > 0
    broker.die()
