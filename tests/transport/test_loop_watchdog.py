"""What holds up the loop is named, counted, and told of seldom; an error of a handler is one
line.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator

import pytest

from roquet.protocol.remoting.codes import RequestCode, ResponseCode
from roquet.protocol.remoting.command import Command
from roquet.transport.channels import Channels
from roquet.transport.connection import Connection, Handler
from roquet.transport.limits import PeerLimits
from roquet.transport.loop_watchdog import LoopWatchdog
from roquet.transport.peers import Peers
from roquet.transport.server import Server
from tests.simulation.loop import VirtualLoop
from tests.simulation.simulation import Simulation

SERVER = "10.0.0.1"


@pytest.fixture
def sim() -> Iterator[Simulation]:
    with Simulation("watch") as sim:
        yield sim


def frame(code: int) -> bytes:
    return Command(code, {}).encode()[4:]


@pytest.fixture
def loop() -> Iterator[VirtualLoop]:
    loop = VirtualLoop()
    yield loop
    loop.close()


def test_a_batch_that_took_long_is_told_of_by_code_and_peer(
    loop: VirtualLoop, caplog: pytest.LogCaptureFixture
) -> None:
    watch = LoopWatchdog(50)
    frames = [
        frame(RequestCode.HEART_BEAT),
        frame(RequestCode.PULL_MESSAGE),
        frame(RequestCode.PULL_MESSAGE),
        b"odd",
    ]
    loop.call_soon(watch.held, 0.083, "10.0.0.9:1", frames)
    loop.run_for(0)
    assert caplog.messages == [
        "event loop held up: ms=83 peer=10.0.0.9:1 requests=2x11,1x34,1xnone"
    ]
    assert (watch.figures()["loopDelayMaxMs"], watch.figures()["loopDelayTimes"]) == ("83", "1")


def test_a_peer_that_holds_it_up_for_ever_gets_a_line_a_minute(
    loop: VirtualLoop, caplog: pytest.LogCaptureFixture
) -> None:
    watch = LoopWatchdog(50)
    for second in range(61):
        loop.call_at(second, watch.held, 0.1, "10.0.0.9:1", [frame(34)])
    loop.run_for(61)
    assert len(caplog.messages) == 2
    assert caplog.messages[1].endswith("(and 59 like it since the last such line)")
    assert watch.count == 61


def test_a_late_timer_without_a_batch_is_told_of_without_a_name(
    loop: VirtualLoop, caplog: pytest.LogCaptureFixture
) -> None:
    watch = LoopWatchdog(50)
    loop.call_at(1.0, watch.look, 0.2, 1.0)
    loop.run_for(1)
    assert "ms=200 requests=none" in caplog.text
    loop.call_at(2.0, watch.held, 0.3, "10.0.0.9:1", [frame(34)])
    loop.call_at(2.0, watch.look, 0.3, 2.0)
    loop.run_for(1)
    assert watch.count == 2, "a batch that was told of makes the timer late, which is no news"


def test_percentiles_are_those_of_the_last_whole_minute() -> None:
    watch = LoopWatchdog(1000)
    watch.look(0.0, 0.0)
    for at in range(100):
        watch.look(0.018 if at < 98 else 0.4, 1.0 + at / 10)
    assert watch.figures()["loopDelay99Ms"] == "0"
    watch.look(0.0, 61.0)
    figures = watch.figures()
    assert (figures["loopDelay50Ms"], figures["loopDelay99Ms"], figures["loopDelayMaxMs"]) == (
        "20",
        "500",
        "400",
    )


def test_who_wants_no_lines_gets_none(caplog: pytest.LogCaptureFixture) -> None:
    watch = LoopWatchdog(0)
    watch.look(5.0, 1.0)
    assert (caplog.messages, watch.max_ms) == ([], 5000)


class Served:
    """A server with one handler."""

    def __init__(self, sim: Simulation, handler: Handler, **limits: int) -> None:
        self.peers = Peers(PeerLimits(**limits))
        host = sim.host(SERVER)
        host.boot()
        server = Server({RequestCode.HEART_BEAT: handler}, peers=self.peers)
        host.call(lambda: server.listen("0.0.0.0", 80))
        self.client = sim.host("10.0.0.9")
        self.client.boot()
        self.channels = Channels()

    def call(self) -> Command:
        request = Command(RequestCode.HEART_BEAT, {})
        return self.client.call(lambda: self.channels.call(f"{SERVER}:80", request, 5000))


def test_a_server_watches_its_batches(sim: Simulation, caplog: pytest.LogCaptureFixture) -> None:
    """With a bound of no time at all each batch is one that took too long."""
    served = Served(sim, lambda request, _: request.answer(0))
    served.peers.watch.notable_s = 0.0
    assert served.call().code == 0
    assert "event loop held up: ms=0 peer=10.0.0.9:" in caplog.text
    assert "requests=1x34" in caplog.text
    assert served.peers.watch.count == 1


def test_an_error_nobody_foresaw_is_one_line_that_says_where_and_a_repeated_one_is_told_of_seldom(
    sim: Simulation, caplog: pytest.LogCaptureFixture
) -> None:
    def wrong(request: Command, connection: Connection) -> Command:
        raise KeyError("x" * 5000 + "\n")

    served = Served(sim, wrong)
    with caplog.at_level(logging.INFO):
        answers = [served.call() for _ in range(50)]
    assert {answer.code for answer in answers} == {ResponseCode.SYSTEM_ERROR}
    assert len(str(answers[0].remark)) == 1000
    (line,) = [record for record in caplog.records if record.levelno >= logging.ERROR]
    assert line.exc_info is None
    text = line.getMessage()
    assert "\n" not in text
    assert text.startswith("request failed: code=34 peer=10.0.0.9:")
    assert " at test_loop_watchdog.py:" in text
    assert len(text) < 1200
