"""What Apache's programs really ask is answered with the same code, fields and members as Apache's
broker gave.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

import pytest

from roquet.protocol.bodies.tables import ConsumerData, Heartbeat, Subscription, TopicConfig
from roquet.protocol.json.dialect import dump_bytes, load
from roquet.protocol.remoting.codes import RequestCode, ResponseCode
from roquet.protocol.remoting.command import Command, decode
from tests.broker.harness import BROKER, Client, World

GOLDEN: Final = Path(__file__).parent.parent / "golden"
CODES: Final = (
    *(12, 14, 15, 17, 21, 26, 28, 29, 30, 31, 32, 34, 35, 38, 41, 42, 43, 45),
    *(200, 201, 202, 203, 204, 207, 208, 215, 300, 305, 9999),
)
REQUESTS: Final = sorted(path for code in CODES for path in GOLDEN.rglob(f"{code}-*.request.bin"))
OUR_REMARKS: Final = {
    "not set any response code": None,
    "the consumer group[GroupGolden5Binary] not online": "no consumer of group GroupGolden5Binary is connected",
}
"""Where ours is another than Apache's."""
OUR_ANSWERS: Final = {
    RequestCode.QUERY_MESSAGE: ResponseCode.QUERY_NOT_FOUND,
    RequestCode.UNREGISTER_CLIENT: ResponseCode.SUCCESS,
}
"""To what Apache's access control refused: ours has none."""


def frame(path: Path) -> Command:
    return decode(path.read_bytes()[4:])


def answer_to(path: Path) -> Path:
    return path.with_name(path.name.replace(".request.", ".response."))


def recorded_answer(path: Path) -> Command:
    """Go's client was gone before its last offset was answered; the answer to mqadmin's has no more
    to say.
    """
    if path.name == "15-update-consumer-offset-unanswered-json.request.bin":
        return frame(
            GOLDEN / "frames" / "mqadmin-4.9.7" / "15-update-consumer-offset-json.response.bin"
        )
    return frame(answer_to(path))


def is_refused(path: Path) -> bool:
    return answer_to(path).exists() and "AclException" in (frame(answer_to(path)).remark or "")


def of_requests(is_meant: Callable[[Path], bool]) -> list[Any]:
    return [
        pytest.param(path, id=str(path.relative_to(GOLDEN))) for path in REQUESTS if is_meant(path)
    ]


def ask(client: Client, request: Command) -> Command:
    return client.host.call(lambda: client.channels.call(BROKER, request, 3000))


def prepared(world: World, path: Path) -> Client:
    """The client that asks, at a broker that knows what Apache's did: the topic with a message, and
    who is there.
    """
    client, request = world.client(), frame(path)
    topic = request.fields.get("topic")
    if topic is not None and request.code != RequestCode.UPDATE_AND_CREATE_TOPIC:
        world.on_broker(lambda: world.topics.update(TopicConfig(topic, 4, 4)))
        world.put(topic, 1, keys=("key1",))
    for heartbeat in path.parent.glob(f"{RequestCode.HEART_BEAT}-heartbeat-consumer-*.request.bin"):
        ask(client, frame(heartbeat))
    if answer_to(path).exists():
        for member in members_in(request, frame(answer_to(path))):
            ask(client, Command(RequestCode.HEART_BEAT, body=dump_bytes(member.to_json())))
    return client


def members_in(request: Command, answer: Command) -> list[Heartbeat]:
    """The members that an answer tells of, as each of them had told of itself."""
    if answer.code != ResponseCode.SUCCESS:
        return []
    match request.code:
        case RequestCode.GET_CONSUMER_LIST_BY_GROUP:
            group = ConsumerData(request.fields["consumerGroup"])
            return [
                Heartbeat(client_id, (), (group,))
                for client_id in load(answer.body)["consumerIdList"]
            ]
        case RequestCode.GET_CONSUMER_CONNECTION_LIST:
            told = load(answer.body)
            wanted = tuple(map(Subscription.from_json, told["subscriptionTable"].values()))
            kind = (told["consumeType"], told["messageModel"], told["consumeFromWhere"])
            group = ConsumerData(request.fields["consumerGroup"], *kind, wanted)
            return [Heartbeat(member["clientId"], (), (group,)) for member in told["connectionSet"]]
        case RequestCode.GET_PRODUCER_CONNECTION_LIST:
            members = load(answer.body)["connectionSet"]
            return [
                Heartbeat(member["clientId"], (request.fields["producerGroup"],))
                for member in members
            ]
        case _:
            return []


@pytest.mark.parametrize(
    "path", of_requests(lambda path: not (frame(path).is_one_way or is_refused(path)))
)
def test_a_recorded_request_is_answered_as_apache_did(world: World, path: Path) -> None:
    request, golden = frame(path), recorded_answer(path)

    answer = ask(prepared(world, path), request)

    assert (answer.code, answer.remark) == (
        golden.code,
        OUR_REMARKS.get(golden.remark or "", golden.remark),
    )
    assert answer.fields.keys() == golden.fields.keys()
    assert answer.header_type == request.header_type
    assert bool(answer.body) == bool(golden.body)
    if golden.body.startswith(b"{"):
        assert load(answer.body).keys() == load(golden.body).keys()


@pytest.mark.parametrize(
    "path", of_requests(lambda path: frame(path).code == RequestCode.UPDATE_CONSUMER_OFFSET)
)
def test_a_recorded_offset_counts_whether_it_wants_an_answer_or_not(
    world: World, path: Path
) -> None:
    client, request = prepared(world, path), frame(path)

    if request.is_one_way:
        client.host.call(lambda: client.channels.notify(BROKER, request))
        world.sim.run_for(1)
    else:
        ask(client, request)

    header = request.fields
    committed = world.offsets.committed(
        header["consumerGroup"], header["topic"], int(header["queueId"])
    )
    assert committed == int(header["commitOffset"])


@pytest.mark.parametrize("path", of_requests(is_refused))
def test_what_apaches_access_control_refused_is_answered(world: World, path: Path) -> None:
    assert (
        ask(prepared(world, path), frame(path)).code == OUR_ANSWERS[RequestCode(frame(path).code)]
    )


def test_only_offsets_are_sent_one_way() -> None:
    assert {frame(path).code for path in REQUESTS if frame(path).is_one_way} == {
        RequestCode.UPDATE_CONSUMER_OFFSET
    }
