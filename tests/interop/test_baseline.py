"""The harness against Apache's own servers: what fails here says nothing about roquet."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest

from tests.interop.apache import (
    PATIENT,
    ApacheBroker,
    ApacheNameServer,
    Finished,
    Version,
    go_client,
    mqadmin,
    require_go,
    require_java,
    run_driver,
    start_driver,
)

pytestmark = [pytest.mark.interop, pytest.mark.long]  # it says nothing of roquet

Run = Callable[..., Finished]
CONSUME_SECONDS = 60


@pytest.fixture(scope="module")
def name_server() -> Iterator[ApacheNameServer]:
    require_java()
    with ApacheNameServer() as server:
        yield server


@pytest.fixture(scope="module")
def broker(name_server: ApacheNameServer) -> Iterator[ApacheBroker]:
    with ApacheBroker(name_server.address) as server:
        yield server


def client(kind: str) -> Run:
    if kind == "go":
        require_go()
        return go_client
    return lambda *args: run_driver(Version(kind), *args)


@pytest.mark.parametrize("consumer", [*Version, "go"])
@pytest.mark.parametrize("producer", [*Version, "go"])
def test_every_client_consumes_what_every_client_produced(
    broker: ApacheBroker, producer: str, consumer: str
) -> None:
    topic = f"From-{producer}-to-{consumer}".replace(".", "-")
    sent = client(producer)(
        "produce", broker.namesrv, topic, 5, *PATIENT, "--tag", "A,B", "--keys", "key"
    ).check()
    assert [line["sendStatus"] for line in sent] == ["SEND_OK"] * 5

    got = client(consumer)(
        "consume", broker.namesrv, topic, f"G-{topic}", 5, CONSUME_SECONDS
    ).check()
    assert sorted(line["msgId"] for line in got) == sorted(line["msgId"] for line in sent)
    assert sorted(line["body"] for line in got) == [f"message-{i}" for i in range(5)]
    assert {line["body"]: line["tags"] for line in got}["message-1"] == "B"
    assert {line["body"]: line["keys"] for line in got}["message-4"] == "key4"


def test_a_tag_expression_selects(broker: ApacheBroker) -> None:
    run_driver(Version.V4, "produce", broker.namesrv, "Tags", 6, *PATIENT, "--tag", "A,B,C").check()
    got = run_driver(
        Version.V4,
        "consume",
        broker.namesrv,
        "Tags",
        "G-tags",
        4,
        CONSUME_SECONDS,
        "--tag",
        "A || C",
    )
    assert sorted(line["tags"] for line in got.check()) == ["A", "A", "C", "C"]


def test_a_batch_is_one_result_and_several_messages(broker: ApacheBroker) -> None:
    sent = run_driver(
        Version.V4, "produce", broker.namesrv, "Batch", 4, *PATIENT, "--batch", 4
    ).check()
    assert len(sent) == 1
    assert len(sent[0]["offsetMsgId"].split(",")) == 4
    got = run_driver(
        Version.V4, "consume", broker.namesrv, "Batch", "G-batch", 4, CONSUME_SECONDS, "--orderly"
    )
    assert [line["queueOffset"] for line in got.check()] == [0, 1, 2, 3]


def test_a_consumer_that_misses_messages_ends_with_1(broker: ApacheBroker) -> None:
    run_driver(Version.V4, "produce", broker.namesrv, "Few", 1, *PATIENT).check()
    assert run_driver(Version.V4, "consume", broker.namesrv, "Few", "G-few", 2, 2).status == 1


def test_a_running_consumer_shows_what_arrives(broker: ApacheBroker) -> None:
    run_driver(Version.V4, "produce", broker.namesrv, "Live", 1, *PATIENT).check()
    with start_driver(
        Version.V4, "consume", broker.namesrv, "Live", "G-live", 1000, 300
    ) as consumer:
        consumer.wait_started()
        run_driver(Version.V4, "produce", broker.namesrv, "Live", 3, *PATIENT).check()
        assert len(consumer.wait_lines(4)) == 4


def test_mqadmin_lists_the_broker(broker: ApacheBroker) -> None:
    spoken = mqadmin("clusterList", namesrv=broker.namesrv)
    assert spoken.status == 0
    assert broker.address in spoken.out


def test_a_killed_broker_comes_back_with_its_messages(broker: ApacheBroker) -> None:
    run_driver(Version.V4, "produce", broker.namesrv, "Kept", 3, *PATIENT).check()
    broker.kill()
    assert (broker.store_dir / "abort").exists()
    broker.start()
    run_driver(Version.V4, "consume", broker.namesrv, "Kept", "G-kept", 3, CONSUME_SECONDS).check()
