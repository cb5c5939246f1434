"""A broker starts and serves, whatever its state files say."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from roquet.broker.metadata import state_files
from roquet.protocol.json.dialect import load
from roquet.protocol.remoting.codes import RequestCode, ResponseCode
from tests.broker.harness import ADDRESS, Client
from tests.broker.served import config, send, serving
from tests.simulation.nodes import BrokerNode
from tests.simulation.simulation import Simulation
from tests.simulation.swallowed import SwallowedErrors
from tests.storage.records import bodies_in

CONFIG: Final = Path("/store/config")
NAMES: Final = (
    state_files.TOPICS,
    state_files.GROUPS,
    state_files.CONSUMER_OFFSETS,
    state_files.DELAY_OFFSETS,
    state_files.CONSUMER_FILTERS,
)
NUMBERS: Final[tuple[object, ...]] = (
    -1,
    0,
    1,
    2**31,
    2**63,
    -(2**63) - 1,
    10**30,
    1.5,
    True,
    "7",
    "x",
    None,
    [],
    {},
)
FILES: Final[dict[str, str]] = {
    state_files.TOPICS: '{"topicConfigTable":{"T":{"topicName":"T","readQueueNums":?,"writeQueueNums":?,"perm":?,'
    '"topicSysFlag":?}},"dataVersion":{"counter":?,"timestamp":?}}',
    state_files.GROUPS: '{"subscriptionGroupTable":{"g":{"groupName":"g","retryQueueNums":?,"brokerId":?,'
    '"retryMaxTimes":?}},"dataVersion":{"counter":?,"timestamp":?}}',
    state_files.CONSUMER_OFFSETS: '{"offsetTable":{"T@g":{0:?,"1":?},"no at":{0:?},"T@":?}}',
    state_files.DELAY_OFFSETS: '{"offsetTable":{1:?,"2":?,-5:1,99999999999:1}}',
    state_files.CONSUMER_FILTERS: '{"filterDataByTopic":{"T":{"topic":"T","groupFilterData":{"g":{"topic":"T",'
    '"consumerGroup":"g","expression":"a > 1","bornTime":?,"deadTime":?,"clientVersion":?,'
    '"bloomFilterData":{"bitNum":?,"bitPos":[1,?]}}}}}}',
}
ODD: Final = (
    b"",
    b"\0" * 100,
    b"\xff\xfe",
    b"null",
    b"[]",
    b'"x"',
    b"NaN",
    b"9" * 5000,
    b"[" * 100_000,
    b'{"a":' * 100_000,
    b'{"topicConfigTable":{"../../x":{"topicName":"../../x"},"a/b":{"topicName":"a/b"},"":{"topicName":""}}}',
    b'{"topicConfigTable":{"T":{"topicName":"U"},"T":{"topicName":"T"}}}',
    b'{"offsetTable":{"../..@g":{0:5},"T@g":{0:5,0:6},"a":{0:%s}}}' % (b"9" * 5000),
    b'{"offsetTable":{"$ref":"$"}}',
    b'{"offsetTable":"$ref"}',
    b'{"subscriptionGroupTable":{"../x":{"groupName":"../x"},"g":{"groupName":"h"}},"dataVersion":[]}',
    b'{"filterDataByTopic":{"T":{"groupFilterData":{"g":{"topic":"T","consumerGroup":"g","expression":"((("}}}}}',
    json.dumps(
        {"filterDataByTopic": {"T": {"groupFilterData": {"g": {"expression": "a>1 OR " * 3000}}}}}
    ).encode(),
)


def integers(value: object) -> Iterator[int]:
    """All integers in a JSON document, and 0."""
    yield 0
    if isinstance(value, int):
        yield value
    for each in (
        value.values() if isinstance(value, dict) else value if isinstance(value, list) else ()
    ):
        yield from integers(each)


def serves(files: dict[str, bytes]) -> list[str]:
    """Start a broker on a store with two messages and these files; the names in its folder, once it
    has served.
    """
    with Simulation("hostile") as sim, SwallowedErrors() as swallowed:
        host = sim.host(ADDRESS)
        node = BrokerNode(ADDRESS, host, config(ADDRESS))
        node.start()
        sim.run_until(lambda: node.broker is not None, 10)
        client = Client(sim, sim.host("10.0.0.9"))
        for number in range(2):
            assert send(client, b"%d" % number).code == ResponseCode.SUCCESS
        sim.run_for(1)
        host.kill()
        host.boot()
        for name, data in files.items():
            host.disk.replace(CONFIG / name, data)
        node.start()
        sim.run_until(lambda: node.broker is not None, 10)
        client = Client(sim, sim.host("10.0.0.7"))
        assert send(client, b"2").code in (
            ResponseCode.SUCCESS,
            ResponseCode.NO_PERMISSION,
            ResponseCode.SYSTEM_ERROR,
        )
        assert bodies_in(serving(node).store, "T")[:2] == [b"0", b"1"]
        for code in (
            RequestCode.GET_ALL_TOPIC_CONFIG,
            RequestCode.GET_ALL_SUBSCRIPTIONGROUP_CONFIG,
            RequestCode.GET_ALL_CONSUMER_OFFSET,
            RequestCode.GET_ALL_DELAY_OFFSET,
            RequestCode.GET_BROKER_RUNTIME_INFO,
        ):
            client.ask(code)
        client.call(RequestCode.GET_TOPIC_STATS_INFO, topic="T")
        client.call(RequestCode.QUERY_CONSUMER_OFFSET, consumerGroup="g", topic="T", queueId=0)
        client.call(RequestCode.GET_CONSUME_STATS, consumerGroup="g", topic="T")
        sim.run_for(15)
        host.call(serving(node).stop)
        swallowed.check()
        for path, file in host.drive.names.files.items():
            if path.parent == CONFIG and path.suffix == ".json":
                assert max(map(abs, integers(load(bytes(file.cached))))) <= 2**63, path
        assert all(path.is_relative_to("/store") for path in host.drive.names.files)
        return [path.name for path in host.drive.names.files if path.parent == CONFIG]


@pytest.mark.parametrize("name", NAMES)
def test_odd_files_are_moved_aside(name: str) -> None:
    for data in ODD:
        serves({name: data, f"{name}.bak": data})
    assert f"{name}.damaged" in serves({name: b"{", f"{name}.bak": b"{"})


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("number", NUMBERS)
def test_odd_members_cost_themselves_only(name: str, number: object) -> None:
    serves({name: FILES[name].replace("?", json.dumps(number)).encode()})


@pytest.mark.parametrize(
    ("name", "number"),
    [
        (state_files.TOPICS, 2**31),
        (state_files.GROUPS, 2**63),
        (state_files.CONSUMER_OFFSETS, 2**63),
        (state_files.DELAY_OFFSETS, 2**63),
    ],
)
def test_a_file_is_copied_before_members_are_lost_whose_numbers_java_does_not_hold(
    name: str, number: int
) -> None:
    data = (
        FILES[name]
        .replace(',"T@":?', "")
        .replace(":?", f":{number}", 1)
        .replace("?", "1")
        .replace("-5:1,99999999999:1", "3:1")
    )
    assert f"{name}.damaged" in serves({name: data.encode()})


@settings(max_examples=25, derandomize=True, deadline=None, suppress_health_check=list(HealthCheck))
@given(
    st.sampled_from(NAMES),
    st.lists(st.sampled_from(NUMBERS), min_size=8, max_size=8),
    st.integers(0, 300),
    st.binary(max_size=3),
)
def test_any_mixture_of_them(name: str, numbers: list[object], at: int, put: bytes) -> None:
    text = FILES[name]
    for number in numbers:
        text = text.replace("?", json.dumps(number), 1)
    data = text.replace("?", "1").encode()
    serves({name: data[:at] + put + data[at + len(put) :]})


def test_topics_that_have_messages_are_known_again() -> None:
    with Simulation("lost topics") as sim:
        host = sim.host(ADDRESS)
        node = BrokerNode(ADDRESS, host, config(ADDRESS))
        node.start()
        sim.run_until(lambda: node.broker is not None, 10)
        send(Client(sim, sim.host("10.0.0.9")), b"0")
        sim.run_for(1)
        host.kill()
        host.boot()
        for name in (state_files.TOPICS, f"{state_files.TOPICS}.bak"):
            host.disk.replace(CONFIG / name, b"{")
        node.start()
        sim.run_until(lambda: node.broker is not None, 10)
        assert serving(node).parts.tables.topics.topics["T"].read_queues == 1
