"""Events about pulls whose offset was corrected.

See docs/storage/fetch.md#what-a-fetch-answers.
"""

from __future__ import annotations

import logging
from pathlib import Path
from typing import Final

import pytest

from roquet.broker.delivery.end_of_turn import EndOfTurn
from roquet.broker.delivery.write_gate import WriteGate
from roquet.broker.offsets.moved_event import OffsetMovedEvents
from roquet.common.steps import finished
from roquet.protocol.headers.pull import PullHeader
from roquet.protocol.json.dialect import load
from roquet.protocol.records.message import OFFSET_MOVED_TOPIC, tag_code
from roquet.protocol.records.record import Record, decode
from roquet.storage.store import Store
from tests.storage.records import found_by_key
from tests.storage.small_stores import HOST, Clock, opened

NOW_MS: Final = 1_700_000_000_123


class Events:
    """The events of one store, and how often a turn was asked for."""

    def __init__(self, folder: Path) -> None:
        self.store: Store = opened(folder, Clock())
        self.gate = WriteGate()
        self.turn = EndOfTurn(self.store.end_turn)
        self.events = OffsetMovedEvents(self.store, self.gate, self.turn, "b", lambda: NOW_MS)

    def note(self, group: str = "g", offset: int = 99, new_offset: int = 7) -> None:
        header = PullHeader(group, "T", 3, offset, 32, 0, 0, 0, "*", 1, "TAG")
        self.events.note(header, new_offset)

    def stored(self) -> list[Record]:
        queue = self.store.queue(OFFSET_MOVED_TOPIC, 0)
        places = [(at, size) for at, size, *_ in queue.entries(0, queue.max_offset)]
        return [decode(self.store.log.stored(*place), verify=True) for place in places]


@pytest.fixture
def events(tmp_path: Path) -> Events:
    return Events(tmp_path)


async def test_an_event_says_which_group_lost_which_offset_where(events: Events) -> None:
    events.note()
    (record,) = events.stored()
    assert load(record.body) == {
        "consumerGroup": "g",
        "messageQueue": {"brokerName": "b", "queueId": 3, "topic": "T"},
        "offsetNew": 7,
        "offsetRequest": 99,
    }
    assert record.properties == {"TAGS": "g", "KEYS": "g"}
    assert record.born_ms == NOW_MS
    assert (record.born_host, record.store_host) == (record.store_host, record.born_host)
    assert events.store.config.store_host == HOST


async def test_an_event_is_found_by_its_group(events: Events) -> None:
    events.note("some-group")
    events.store.end_turn()
    finished(events.store.flush_index())
    queue = events.store.queue(OFFSET_MOVED_TOPIC, 0)
    assert [entry[2] for entry in queue.entries(0, 1)] == [tag_code("some-group")]
    hits = found_by_key(events.store, OFFSET_MOVED_TOPIC, "some-group", 9, 0, 1 << 62)
    assert len(hits.records) == 1


async def test_the_end_of_the_turn_follows_an_event(events: Events) -> None:
    assert not events.turn.is_due
    events.note()
    assert events.turn.is_due


async def test_each_correction_is_an_event_and_a_group_is_logged_once_a_minute(
    events: Events, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)
    for group in "ggh":
        events.note(group)
    assert [load(record.body)["consumerGroup"] for record in events.stored()] == ["g", "g", "h"]
    assert [line for line in caplog.messages if "corrected" in line] == [
        f"pull offset is outside its queue, corrected: group={group} topic=T queue=3 offset=99"
        " new_offset=7"
        for group in "gh"
    ]


async def test_a_closed_gate_keeps_events_out_and_pulls_go_on(
    events: Events, caplog: pytest.LogCaptureFixture
) -> None:
    events.gate.close("no room")
    events.note()
    events.note("h")
    assert (events.stored(), events.turn.is_due) == ([], False)
    (line,) = [text for text in caplog.messages if "not stored" in text]
    assert line.endswith("topic=OFFSET_MOVED_EVENT group=g error=no room")
    events.gate.open()
    events.note()
    assert len(events.stored()) == 1
