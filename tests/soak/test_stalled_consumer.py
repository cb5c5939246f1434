"""Consumers whose handlers hang, and one who never asks, while a producer sends at full rate."""

from __future__ import annotations

import asyncio
import random
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, suppress
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from statistics import median
from typing import Final

import pytest

from bench import machine, procfs
from roquet.client.producer import Producer
from roquet.errors import RoquetError
from roquet.protocol.json.dialect import load
from roquet.protocol.remoting.codes import RequestCode
from tests.interop import wire
from tests.interop.processes import Program
from tests.interop.roquet_cluster import RoquetBroker, RoquetNameServer, create_topic
from tests.soak.pages import replace_section
from tests.soak.stalled_member import HANGS, HANGS_IN_ORDER, KINDS, NEVER_ASKS, TOTAL_SIZE_MAX

pytestmark = [pytest.mark.process]

TOPIC: Final = "stalled"
QUEUES: Final = 4
SENDERS: Final = 64
BODY_SIZES: Final = (50, 400)
LOOK_EACH_S: Final = 5.0
HEADING: Final = "# Stalled consumers"
HELD_MAX: Final = (1000 + 32) * (QUEUES + 1)
"""Messages: the limit of each queue, that of the retry topic among them, and one pull more."""
HELD_BY_SIZE_MAX: Final = 2 * TOTAL_SIZE_MAX // sum(BODY_SIZES) * 5 // 4
"""The messages that `TOTAL_SIZE_MAX` allows, and the last pulls of each queue."""
MEMORY_MORE_MAX: Final = 4 << 20
TEXTS: Final[Mapping[str, str]] = {
    HANGS: "its four handlers hang",
    HANGS_IN_ORDER: "ordered, its four handlers hang",
    NEVER_ASKS: "never asks for a message, `total_size_max` is 256 KiB",
}


@dataclass(frozen=True, slots=True)
class Look:
    """Of one member: bytes in memory, and the messages that it holds."""

    resident: int
    held: int


class Load:
    """Sends as fast as it can; `sent` messages were acknowledged."""

    def __init__(self, name_server: str, chance: random.Random) -> None:
        self.sent = self.failed = 0
        self._name_server = name_server
        self._bodies = [chance.randbytes(chance.randint(*BODY_SIZES)) for _ in range(97)]

    async def run(self, seconds: float) -> None:
        until_s = time.monotonic() + seconds
        async with Producer(self._name_server, "stalling") as producer:
            await asyncio.gather(*(self._send(producer, until_s) for _ in range(SENDERS)))

    async def _send(self, producer: Producer, until_s: float) -> None:
        while time.monotonic() < until_s:
            try:
                await producer.send(TOPIC, self._bodies[self.sent % len(self._bodies)])
                self.sent += 1
            except RoquetError:
                self.failed += 1


def held(broker: RoquetBroker, kind: str) -> int:
    """How many messages a member holds, as it tells administrators."""
    fields = {"consumerGroup": kind, "clientId": kind, "jstackEnable": "false"}
    answer = wire.ask(broker.address, RequestCode.GET_CONSUMER_RUNNING_INFO, fields, timeout_s=30)
    assert answer.code == 0, answer
    return sum(int(each["cachedMsgCount"]) for each in load(answer.body)["mqTable"].values())


def members(stack: ExitStack, name_server: str) -> Iterator[Program]:
    for kind in KINDS:
        program = stack.enter_context(Program(kind))
        arguments = ["-m", "tests.soak.stalled_member", name_server, TOPIC, kind]
        root = str(Path(__file__).parents[2])
        program.launch([sys.executable, *arguments], {"PYTHONPATH": f"{root}/src:{root}"})
        yield program


async def look_again_and_again(
    broker: RoquetBroker, programs: Sequence[Program], looks: dict[str, list[Look]]
) -> None:
    while True:
        await asyncio.sleep(LOOK_EACH_S)
        for program in programs:
            count = await asyncio.to_thread(held, broker, program.name)
            looks[program.name].append(Look(procfs.memory(program.pid).resident, count))


def test_a_member_that_is_stuck_holds_no_more_and_more(
    soak_seed: int, seconds: float, report: Path | None
) -> None:
    looks: dict[str, list[Look]] = {kind: [] for kind in KINDS}
    with ExitStack() as stack:
        name_server = stack.enter_context(RoquetNameServer())
        broker = stack.enter_context(RoquetBroker(name_server.address))
        create_topic(broker, TOPIC, QUEUES)
        programs = list(members(stack, name_server.address))
        load_ = Load(name_server.address, random.Random(soak_seed))

        async def run() -> None:
            looking = asyncio.create_task(look_again_and_again(broker, programs, looks))
            await load_.run(seconds)
            assert not looking.done(), looking.result()
            looking.cancel()
            with suppress(asyncio.CancelledError):
                await looking

        asyncio.run(run())
    text = section(load_, looks, seconds, soak_seed)
    print(text)  # noqa: T201
    if report is not None:
        replace_section(report, HEADING, text)
    assert load_.sent > seconds
    for kind, of_kind in looks.items():
        assert 0 < max(look.held for look in of_kind) <= HELD_MAX, kind
        second, last = (median(each.resident for each in third) for third in thirds(of_kind)[1:])
        assert last - second < MEMORY_MORE_MAX, kind
    assert max(look.held for look in looks[NEVER_ASKS]) <= HELD_BY_SIZE_MAX


def thirds(looks: Sequence[Look]) -> list[Sequence[Look]]:
    return [looks[len(looks) * number // 3 : len(looks) * (number + 1) // 3] for number in range(3)]


def section(load_: Load, looks: Mapping[str, Sequence[Look]], seconds: float, seed: int) -> str:
    """The part of a page that tells how it went."""
    lines = [
        HEADING,
        "",
        f"- {datetime.now(UTC).date()}, `python -m pytest -s tests/soak/test_stalled_consumer.py --minutes "
        f"{seconds / 60:g} --soak-seed {seed}`, {machine.describe()}",
        f"- a producer sends at full rate meanwhile: {load_.sent:,} messages of {BODY_SIZES[0]} to "
        f"{BODY_SIZES[1]:,} bytes to {QUEUES} queues, {load_.sent / seconds:,.0f} a second; "
        f"{load_.failed:,} sends failed",
        "- each member is a process of its own; figures are medians of the looks in each third of "
        "the time, the most held is of all looks",
        "",
        "| member | resident, MiB, first third | second | last | messages held, most |",
        "| --- | --- | --- | --- | --- |",
    ]
    for kind, of_kind in looks.items():
        sizes = [
            f"{median(look.resident for look in third) / (1 << 20):.1f}"
            for third in thirds(of_kind)
        ]
        most = max(look.held for look in of_kind)
        lines.append(f"| {TEXTS[kind]} | {' | '.join(sizes)} | {most:,} |")
    return "\n".join(lines) + "\n"
