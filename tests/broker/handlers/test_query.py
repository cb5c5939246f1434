"""Finding messages by key and place.

See docs/pitfalls.md#trap-45, docs/pitfalls.md#trap-46 and
docs/protocol/administration.md#query-by-key.
"""

from __future__ import annotations

import pytest

from roquet.common.steps import finished
from roquet.protocol.records.record import decode, decode_all
from roquet.protocol.remoting.codes import RequestCode, ResponseCode
from roquet.storage import key_search
from tests.broker.harness import World

EVER = {"beginTimestamp": 0, "endTimestamp": 2**63 - 1}


def test_messages_are_found_by_their_key(world: World) -> None:
    places = [
        world.put("T", keys=("k",)),
        world.put("T", keys=("other",)),
        world.put("T", keys=("k", "l")),
    ]
    answer = world.client().call(RequestCode.QUERY_MESSAGE, topic="T", key="k", maxNum=8, **EVER)
    assert answer.code == ResponseCode.SUCCESS
    assert [record.physical_offset for record in decode_all(answer.body)] == [places[0], places[2]]
    assert set(answer.fields) == {"indexLastUpdateTimestamp", "indexLastUpdatePhyoffset"}
    assert int(answer.fields["indexLastUpdatePhyoffset"]) == places[2]


def test_the_newest_of_many_are_chosen(world: World) -> None:
    places = [world.put("T", keys=("k",)) for _ in range(40)]
    client = world.client()

    def found(**fields: object) -> list[int]:
        body = client.call(RequestCode.QUERY_MESSAGE, topic="T", key="k", **EVER, **fields).body
        return [record.physical_offset for record in decode_all(body)]

    assert found(maxNum=2) == places[-2:]
    assert found(maxNum=1, _UNIQUE_KEY_QUERY="true") == places[-32:]


def test_no_more_are_given_than_the_broker_s_settings_allow(world: World) -> None:
    places = [world.put("T", keys=("k",)) for _ in range(70)]
    body = (
        world.client().call(RequestCode.QUERY_MESSAGE, topic="T", key="k", maxNum=1000, **EVER).body
    )
    assert [record.physical_offset for record in decode_all(body)] == places[-64:]


def test_the_newest_are_given_that_fit_into_an_answer(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    """64 messages of 4 MiB would be a frame of 256 MiB, which no client takes."""
    places = [world.put("T", keys=("k",)) for _ in range(5)]
    client = world.client()
    for size_max, count in ((2 * (places[1] - places[0]), 2), (1, 1)):
        monkeypatch.setattr(key_search, "KEY_BYTES_MAX", size_max)
        body = client.call(RequestCode.QUERY_MESSAGE, topic="T", key="k", maxNum=8, **EVER).body
        assert [record.physical_offset for record in decode_all(body)] == places[-count:]


def test_a_key_of_many_messages_is_looked_for_while_others_are_served(world: World) -> None:
    """All of them are newer than what is asked for: the whole chain is gone through, a few entries
    at a time, and all files.
    """
    first = world.put("T", keys=("k",))
    stored_ms = world.store.store_time("T", 0, 0)
    world.sim.run_for(5)
    for _ in range(300):
        world.put("T", keys=("k",))
    before = world.slices.count
    fields = {
        "topic": "T",
        "key": "k",
        "maxNum": 8,
        "beginTimestamp": 0,
        "endTimestamp": stored_ms + 1000,
    }
    answer = world.client().call(RequestCode.QUERY_MESSAGE, **fields)
    assert [record.physical_offset for record in decode_all(answer.body)] == [first]
    assert world.slices.count > before
    search = world.store.search_by_key("T", "k", 8, 0, stored_ms + 1000)
    index = world.store.index
    assert index is not None
    assert sum(1 for _ in search) >= len(index.files) > 2


def test_an_index_file_that_is_given_up_meanwhile_ends_the_search(world: World) -> None:
    for _ in range(100):
        world.put("T", keys=("k",))
    index = world.store.index
    assert index is not None
    finished(world.store.flush_index())
    search = index.find("T", "k", 0, 1, 8)
    for _ in range(2):
        next(search)
    index.files.pop().close()
    with pytest.raises(StopIteration) as end:
        next(search)
    assert end.value.value == []


def test_less_than_no_message_cannot_be_asked_for(world: World) -> None:
    """Apache's broker answers the same; with a unique key it does not look at the number."""
    ask, more = world.client().call, {"topic": "T", "key": "k", **EVER}
    for count in (-1, -(2**31)):
        assert (
            ask(RequestCode.QUERY_MESSAGE, maxNum=count, **more).code == ResponseCode.SYSTEM_ERROR
        )
    unique = ask(RequestCode.QUERY_MESSAGE, maxNum=-1, _UNIQUE_KEY_QUERY="true", **more)
    assert unique.code == ResponseCode.QUERY_NOT_FOUND


def test_a_key_that_nobody_used_is_not_found(world: World) -> None:
    answer = world.client().call(RequestCode.QUERY_MESSAGE, topic="T", key="k", maxNum=8, **EVER)
    assert answer.code == ResponseCode.QUERY_NOT_FOUND


def test_a_message_is_found_by_its_place_and_nothing_else_is(world: World) -> None:
    client = world.client()
    at = world.put("T", body=b"first")
    record = decode(client.call(RequestCode.VIEW_MESSAGE_BY_ID, offset=at).body)
    assert (record.body, record.topic) == (b"first", "T")
    for wrong in (at + 1, -1, 2**62, world.store.log.end):
        assert (
            client.call(RequestCode.VIEW_MESSAGE_BY_ID, offset=wrong).code
            == ResponseCode.SYSTEM_ERROR
        )
