"""A master and its slave under all that clients do, for half an hour: nothing is lost, and nothing
piles up.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from statistics import median
from typing import Final

import pytest

from bench import machine, procfs
from bench.couples import log_end
from roquet.protocol.json.dialect import load
from roquet.protocol.remoting.codes import RequestCode
from tests.fuzz.broker.beside import HostileClients
from tests.interop import wire
from tests.interop.apache import require_java
from tests.interop.roquet_cluster import RoquetBroker, RoquetCluster, create_topic
from tests.soak.ledger import DELAYS_MS
from tests.soak.mixed_load import KINDS, OURS, QUEUES, THEIRS, TOPICS, MixedLoad
from tests.soak.pages import replace_section

pytestmark = [pytest.mark.process, pytest.mark.interop]

HEADING: Final = "# Under mixed load"
LOOK_EACH_S: Final = 5.0
DRAINED_WITHIN_S: Final = 180.0
MEMORY_MORE_MAX: Final = 64 << 20
FILES_MORE_MAX: Final = 64
LAG_MAX: Final = 20_000
"""Messages; what 200 a second leave in the time in which the members of a group change."""
DOUBLED_MAX: Final = 0.2
"""Of what a group got: members that leave hand back what they had not settled."""
SETTINGS: Final[dict[str, str | int]] = {
    "messageDelayLevel": " ".join(f"{delay_ms // 1000}s" for delay_ms in DELAYS_MS.values()),
    "transactionTimeOut": 2_000,
    "transactionCheckInterval": 2_000,
}


@dataclass(frozen=True, slots=True)
class Look:
    """Of master and slave: bytes that are no pages of files, and open files; how many messages the
    slowest group, and bytes the slave, are behind."""

    memory: tuple[int, int]
    files: tuple[int, int]
    lag: int
    slave_behind: int


async def look_again_and_again(cluster: RoquetCluster, looks: list[Look]) -> None:
    while True:
        looks.append(await asyncio.to_thread(look, cluster))
        await asyncio.sleep(LOOK_EACH_S)


def look(cluster: RoquetCluster) -> Look:
    brokers = cluster.master, cluster.slave
    memory = [procfs.memory(broker.pid).anonymous for broker in brokers]
    files = [len(list(Path(f"/proc/{broker.pid}/fd").iterdir())) for broker in brokers]
    behind = log_end(cluster.master.address) - log_end(cluster.slave.address)
    return Look(
        (memory[0], memory[1]),
        (files[0], files[1]),
        max(lag(cluster.master, group) for group in KINDS),
        behind,
    )


def lag(master: RoquetBroker, group: str) -> int:
    """Messages that a group has not consumed yet; 0 as long as the broker does not know it."""
    answer = wire.ask(
        master.address, RequestCode.GET_CONSUME_STATS, {"consumerGroup": group}, timeout_s=30
    )
    if answer.code != 0:
        return 0
    table = load(answer.body)["offsetTable"]
    return sum(int(each["brokerOffset"]) - int(each["consumerOffset"]) for each in table.values())


def test_nothing_is_lost_and_nothing_piles_up(
    soak_seed: int, seconds: float, report: Path | None
) -> None:
    require_java()
    looks: list[Look] = []
    with (
        RoquetCluster(properties=SETTINGS) as cluster,
        HostileClients(cluster, soak_seed, seconds) as hostile,
    ):
        hostile.start()
        for topic in TOPICS:
            create_topic(cluster.master, topic, QUEUES)
        load_ = MixedLoad(cluster.namesrv, random.Random(soak_seed))

        async def run() -> None:
            looking = asyncio.create_task(look_again_and_again(cluster, looks))
            await load_.run(seconds, DRAINED_WITHIN_S)
            looking.cancel()
            with suppress(asyncio.CancelledError):
                await looking

        asyncio.run(run())
        text = page(load_, looks, seconds, soak_seed, hostile.sent(DRAINED_WITHIN_S))
    print(text)  # noqa: T201
    if report is not None:
        replace_section(report, HEADING, text)

    assert load_.missing() == {}
    assert load_.ledger.unwanted() == []
    assert load_.ledger.early == []
    assert load_.answered > seconds / 3
    assert max(load_.ledger.doubled(group) for group in (OURS, THEIRS)) < DOUBLED_MAX
    assert max(each.lag for each in looks) < LAG_MAX
    for number, _ in enumerate((cluster.master, cluster.slave)):
        assert grown(looks, lambda each, number=number: each.memory[number]) < MEMORY_MORE_MAX  # type: ignore[misc]
        assert grown(looks, lambda each, number=number: each.files[number]) < FILES_MORE_MAX  # type: ignore[misc]


def grown(looks: Sequence[Look], figure: Callable[[Look], int]) -> float:
    """How much larger it was in the last third than in the second one."""
    third = len(looks) // 3
    return median(map(figure, looks[2 * third :])) - median(map(figure, looks[third : 2 * third]))


def page(load_: MixedLoad, looks: Sequence[Look], seconds: float, seed: int, hostile: int) -> str:
    ledger = load_.ledger
    thirds = [
        looks[len(looks) * number // 3 : len(looks) * (number + 1) // 3] for number in range(3)
    ]
    lines = [
        HEADING,
        "",
        f"- {datetime.now(UTC).date()}, `make soak MINUTES={seconds / 60:g} SEED={seed}`, {machine.describe()}",
        "- SYNC_MASTER and slave; single messages, batches, delayed ones, transactions, requests with replies; three"
        " groups whose members come and go all the time, one of them Apache's Java consumer that is killed with -9",
        f"- beside them hostile clients: {hostile:,} odd requests of every code, half frames, unread answers; "
        "they make topics, so open files grow",
        "- memory is what is no page of a file; figures are medians of the looks in each third of the time",
        "",
        "| | first third | second third | last third |",
        "| --- | --- | --- | --- |",
    ]
    rows: list[tuple[str, Callable[[Look], float]]] = [
        ("master: memory, MiB", lambda each: each.memory[0] / (1 << 20)),
        ("slave: memory, MiB", lambda each: each.memory[1] / (1 << 20)),
        ("master: open files", lambda each: each.files[0]),
        ("slave: open files", lambda each: each.files[1]),
        ("messages that the slowest group has before it", lambda each: each.lag),
        ("bytes that the slave has before it", lambda each: each.slave_behind),
    ]
    for name, figure in rows:
        lines.append(
            f"| {name} | "
            + " | ".join(f"{median(map(figure, third)):,.0f}" for third in thirds)
            + " |"
        )
    lines += [
        "",
        "| group | messages due | missing | got twice or more |",
        "| --- | --- | --- | --- |",
    ]
    for group, kinds in KINDS.items():
        due = sum(
            1 for key, sent in ledger.sent.items() if sent.is_wanted and key.startswith(kinds)
        )
        lines.append(
            f"| {group} | {due:,} | {len(ledger.missing(group, kinds)):,} | {ledger.doubled(group):.2%} |"
        )
    lines += [
        "",
        f"Rolled back and delivered nevertheless: {len(ledger.unwanted())}. Delivered before its time: "
        f"{len(ledger.early)}. Requests answered: {load_.answered:,}. Sends that were refused or not answered: "
        f"{load_.refused:,}.",
    ]
    return "\n".join(lines) + "\n"
