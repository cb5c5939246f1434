"""What Apache's clients really ask is answered with the same code, fields and members as Apache's broker gave."""

from __future__ import annotations

from pathlib import Path
from typing import Final

import pytest
from tests.broker.harness import BROKER, World

from roquet.protocol.codes import RequestCode
from roquet.protocol.command import ONE_WAY, Command, decode
from roquet.protocol.json_dialect import load

FRAMES: Final = Path(__file__).parent.parent / "golden" / "frames"
CODES: Final = (12, 14, 15, 29, 30, 31, 32, 34, 35, 38, 41, 42)
REQUESTS: Final = sorted(path for code in CODES for path in FRAMES.glob(f"client-*/{code}-*.request.bin"))


def frame(path: Path) -> Command:
    return decode(path.read_bytes()[4:])


def topics_of(request: Command) -> set[str]:
    return {request.fields["topic"]} if "topic" in request.fields else set()


@pytest.mark.parametrize("path", REQUESTS, ids=lambda path: f"{path.parent.name}/{path.name}")
def test_a_recorded_request_is_answered_as_apache_did(world: World, path: Path) -> None:
    request = frame(path)
    for topic in topics_of(request):
        world.put(topic, 1, keys=("key1",))
    client = world.client()

    async def send(command: Command) -> Command | None:
        if command.flag & ONE_WAY:
            await client.channels.notify(BROKER, command)
            return None
        return await client.channels.call(BROKER, command, 3000)

    for heartbeat in path.parent.glob(f"{RequestCode.HEART_BEAT}-heartbeat-consumer-*.request.bin"):
        client.host.call(lambda heartbeat=heartbeat: send(frame(heartbeat)))  # type: ignore[misc]
    answer = client.host.call(lambda: send(request))
    if answer is None:
        world.sim.run_for(1)
        header = request.fields
        committed = world.progress.committed(header["consumerGroup"], header["topic"], int(header["queueId"]))
        assert committed == int(header["commitOffset"])
        return
    golden = frame(path.with_name(path.name.replace(".request.", ".response.")))
    assert (answer.code, answer.remark) == (golden.code, golden.remark)
    assert answer.fields.keys() == golden.fields.keys()
    assert answer.header_type == request.header_type
    assert bool(answer.body) == bool(golden.body)
    if golden.body.startswith(b"{"):
        assert load(answer.body).keys() == load(golden.body).keys()
