"""Whatever stands in a request, of any code: it is answered, or its connection ends, and the broker
goes on.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator
from typing import Final

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from roquet.errors import CallTimeout, ConnectionClosed
from roquet.protocol.remoting.codes import RequestCode, ResponseCode
from roquet.protocol.remoting.command import BINARY, JSON, Command
from tests.broker.apache_requests import KNOWN, MAY_NOT_BE_ANSWERED
from tests.broker.harness import Client
from tests.broker.served import send, started
from tests.simulation.simulation import Simulation

ADDRESS: Final = "10.0.0.1"
ODD: Final = st.sampled_from(
    (
        "", " ", "-1", "0", "1", "7", " 1", "1.5", "1e9", "true", "nan", "x", "*", "T", "é", "\x01", "\x02",
        "a\x01b\x02", "2147483647", "2147483648", "-2147483649", "9223372036854775807", "9223372036854775808",
        "1" * 400,
        "%RETRY%g", "TBW102", "SCHEDULE_TOPIC_XXXX", "RMQ_SYS_TRANS_HALF_TOPIC", "../../etc", "t" * 130, "{}", "[",
        "7F00000100002A9F00000000000000FF", "DELAY\x01x\x02", "TRAN_MSG\x01true\x02PGROUP\x01g\x02",
        "UNIQ_KEY\x01" + "k" * 40_000, "DELAY\x0199\x02REAL_TOPIC\x01\x02",
    )
)  # fmt: skip
VALUES: Final = ODD | st.text(max_size=12) | st.integers(-(1 << 65), 1 << 65).map(str)
BODIES: Final = (
    st.binary(max_size=64)
    | st.sampled_from(
        (
            b"", b"{}", b"[]", b"null", b"1", b'"', b'{"a":', b"[" * 5_000, b'{"table":{1:2}}', b"\xff" * 40,
            b"a=b\nc", b"\0" * 24,
        )
    )
    | st.integers(-(1 << 31), (1 << 31) - 1).map(lambda size: size.to_bytes(4, "big", signed=True) + bytes(30))
)  # fmt: skip


@st.composite
def requests(draw: Callable[..., object], code: int) -> Command:
    """Like a known one, but for some of its fields, or its body."""
    known = draw(st.sampled_from(KNOWN.get(code) or [Command(code)]))
    assert isinstance(known, Command)
    changed = (
        draw(st.dictionaries(st.sampled_from(sorted(known.fields)), VALUES, max_size=3))
        if known.fields
        else {}
    )
    dropped = (
        draw(st.sets(st.sampled_from(sorted(known.fields)), max_size=2)) if known.fields else set()
    )
    added = draw(
        st.dictionaries(
            st.sampled_from(("topic", "queueId", "group", "consumerGroup", "a", "i")), VALUES
        )
    )
    assert isinstance(changed, dict)
    assert isinstance(added, dict)
    assert isinstance(dropped, set)
    fields = {
        name: value
        for name, value in (known.fields | changed | added).items()
        if name not in dropped
    }
    body = draw(
        st.just(known.body) | BODIES | st.integers(0, 80).map(lambda size: known.body[:size])
    )
    form, version = draw(st.sampled_from((JSON, BINARY))), draw(st.sampled_from((0, 100, 409, 479)))
    return Command(code, fields, body, version=version, header_type=form)  # type: ignore[arg-type]


@pytest.fixture(scope="module")
def client() -> Iterator[Client]:
    with Simulation(1) as sim:
        started(
            sim,
            ADDRESS,
            brokerRole="ASYNC_MASTER",
            enablePropertyFilter="true",
            messageDelayLevel="1s 2s",
        )
        client = Client(sim, sim.host("10.0.0.9"))
        assert send(client, b"first").code == ResponseCode.SUCCESS
        yield client


@pytest.mark.parametrize("code", RequestCode, ids=lambda code: f"{code.value}-{code.name}")
def test_it_is_answered_or_its_connection_ends(
    client: Client, caplog: pytest.LogCaptureFixture, code: RequestCode
) -> None:
    @settings(
        max_examples=25,
        deadline=None,
        suppress_health_check=list(HealthCheck),
        derandomize=True,
        database=None,
    )
    @given(requests(code))
    def ask(request: Command) -> None:
        caplog.clear()
        try:
            client.host.call(lambda: client.channels.call(client.broker, request, 3000))
        except ConnectionClosed:
            pass
        except CallTimeout:
            assert code in MAY_NOT_BE_ANSWERED, "nobody answered, and the connection stands"
        bugs = [record for record in caplog.records if record.levelno >= logging.ERROR]
        assert not bugs, [(record.getMessage(), record.exc_info) for record in bugs]

    ask()
    assert send(client, b"and on it goes").code == ResponseCode.SUCCESS
