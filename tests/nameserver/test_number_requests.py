"""Every number of every request to a name server, at and beyond the borders of Java's ranges."""

from __future__ import annotations

import logging
from functools import partial
from typing import Final

import pytest

from roquet.protocol.remoting.codes import RequestCode, ResponseCode
from roquet.protocol.remoting.command import Command
from tests.broker.apache_requests import variants
from tests.broker.harness import Client
from tests.simulation.nodes import NAME_SERVER_PORT, NameServerNode
from tests.simulation.simulation import Simulation

ADDRESS: Final = "10.0.0.2"


def test_any_number_is_answered_and_others_are_served(caplog: pytest.LogCaptureFixture) -> None:
    with Simulation(1) as sim:
        node = NameServerNode(sim.host(ADDRESS))
        node.start()
        sim.run_until(lambda: node.is_serving, 10)
        client = Client(sim, sim.host("10.0.0.9"), f"{ADDRESS}:{NAME_SERVER_PORT}")
        asked = 0
        for code in RequestCode:
            for request, _ in variants(code):
                answer = client.host.call(
                    partial(client.channels.call, client.broker, request, 3000)
                )
                assert isinstance(answer, Command)
                assert answer.code in set(ResponseCode)
                asked += 1
        bugs = [
            record
            for record in caplog.records
            if record.levelno >= logging.ERROR or record.exc_info
        ]
        assert not bugs, [(record.getMessage(), record.exc_info) for record in bugs]
        assert asked > 1000
        assert client.call(RequestCode.GET_BROKER_CLUSTER_INFO).code == ResponseCode.SUCCESS
