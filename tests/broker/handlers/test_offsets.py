"""Consumer offsets and the bounds of queues.

See docs/pitfalls.md#trap-29, docs/pitfalls.md#trap-30 and docs/protocol/consuming.md#offsets.
"""

from __future__ import annotations

from roquet.protocol.remoting.codes import RequestCode, ResponseCode
from tests.broker.harness import ON_DISK, World


def test_a_committed_offset_is_given_back(world: World) -> None:
    client = world.client()
    queue = {"consumerGroup": "g", "topic": "T", "queueId": 3}
    for offset in (9, 4):
        assert (
            client.call(RequestCode.UPDATE_CONSUMER_OFFSET, **queue, commitOffset=offset).code == 0
        )
    assert client.call(RequestCode.QUERY_CONSUMER_OFFSET, **queue).fields == {"offset": "4"}


def test_a_master_takes_a_group_for_no_further_than_a_queue_it_knows(world: World) -> None:
    """What the group saw beyond it was lost, or only a former master had it."""
    world.put("T")
    queue = {"consumerGroup": "g", "topic": "T", "queueId": 0}
    assert (
        world.client().call(RequestCode.UPDATE_CONSUMER_OFFSET, **queue, commitOffset=5).code == 0
    )
    assert world.offsets.committed("g", "T", 0) == 1


def test_a_group_without_progress_starts_at_0_while_the_first_message_is_in_memory(
    world: World,
) -> None:
    client = world.client()
    queue = {"consumerGroup": "g", "topic": "T", "queueId": 0}
    assert client.call(RequestCode.QUERY_CONSUMER_OFFSET, **queue).fields == {"offset": "0"}, (
        "an unknown queue is young"
    )
    world.put("T")
    assert client.call(RequestCode.QUERY_CONSUMER_OFFSET, **queue).fields == {"offset": "0"}
    for _ in range(3):
        world.put("U", body=bytes(ON_DISK // 2))
    assert (
        client.call(RequestCode.QUERY_CONSUMER_OFFSET, **queue).code == ResponseCode.QUERY_NOT_FOUND
    )


def test_the_bounds_of_a_queue(world: World) -> None:
    client = world.client()
    queue = {"topic": "T", "queueId": 1}
    assert client.call(RequestCode.GET_MIN_OFFSET, **queue).fields == {"offset": "0"}
    assert client.call(RequestCode.GET_MAX_OFFSET, **queue).fields == {"offset": "0"}
    assert client.call(RequestCode.GET_EARLIEST_MSG_STORETIME, **queue).fields == {
        "timestamp": "-1"
    }
    stored_ms = []
    for _ in range(3):
        stored_ms.append(world.host.now_ms())
        world.put("T", 1)
        world.sim.run_for(10)
    assert client.call(RequestCode.GET_MIN_OFFSET, **queue).fields == {"offset": "0"}
    assert client.call(RequestCode.GET_MAX_OFFSET, **queue).fields == {"offset": "3"}
    earliest = int(client.call(RequestCode.GET_EARLIEST_MSG_STORETIME, **queue).fields["timestamp"])
    assert stored_ms[0] <= earliest < stored_ms[0] + 1000
    found = client.call(
        RequestCode.SEARCH_OFFSET_BY_TIMESTAMP, **queue, timestamp=stored_ms[1] + 1000
    )
    assert found.fields == {"offset": "1"}
    unknown = client.call(RequestCode.SEARCH_OFFSET_BY_TIMESTAMP, topic="X", queueId=0, timestamp=0)
    assert unknown.fields == {"offset": "0"}


def test_a_field_that_is_missing_refuses_the_request(world: World) -> None:
    answer = world.client().call(RequestCode.GET_MAX_OFFSET, topic="T")
    assert (answer.code, answer.remark) == (
        ResponseCode.SYSTEM_ERROR,
        "header field queueId is missing",
    )
