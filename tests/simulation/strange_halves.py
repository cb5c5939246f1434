"""A client whose half messages say what no producer lets them say; it commits each of them
later.
"""

from __future__ import annotations

import asyncio
from typing import Final

from roquet.errors import RoquetError
from roquet.protocol.headers.transactions import COMMIT
from roquet.protocol.records import message as m
from roquet.protocol.remoting.codes import RequestCode, ResponseCode
from roquet.protocol.remoting.command import Command, to_text
from roquet.transport.channels import Channels
from tests.simulation.transactions import TransactionWorld, delivered

ADDRESS: Final = "10.0.4.9"
GROUP: Final = "strangers"
TOPIC: Final = "strange"
CALL_MS: Final = 3_000
PAUSE_S: Final = 1.0
"""Before a commit that nobody answered is sent again."""
NO_NUMBERS: Final = (
    *(
        "9" * 5_000,
        "-" + "9" * 5_000,
        "9223372036854775808",
        "²",
        "1e3",
        " 1",
        "\0",
        "-1",
        "",
        "0.5",
    ),
    *("0" * 5_000 + "7", "٣", "+5"),
)
"""Java reads the last three as 7, 3 and 5, and none of the others as a positive long."""


class StrangeHalves:
    """Invariant: `committed` are the bodies of those whose commit was answered with success, `unsure`
    of those that may have ended by a commit that was not answered; `pending` is how many are under
    way.
    """

    def __init__(self, world: TransactionWorld) -> None:
        self.committed: set[str] = set()
        self.unsure: set[str] = set()
        self.pending = 0
        self._world = world
        self._host = world.sim.host(ADDRESS)
        self._chance = world.sim.chance("strange halves")
        self._sent = 0

    def send(self, count: int, within_s: float) -> None:
        """Begin so many, at any time from now on."""
        self.pending += count
        self._host.start(lambda: self._send_all(count, within_s))

    async def _send_all(self, count: int, within_s: float) -> None:
        channels = Channels()
        try:
            async with asyncio.TaskGroup() as group:
                for _ in range(count):
                    group.create_task(self._after(self._chance.uniform(0, within_s), channels))
        finally:
            await channels.close()

    async def _after(self, seconds: float, channels: Channels) -> None:
        await asyncio.sleep(seconds)
        try:
            await self._send_and_commit(channels)
        finally:
            self.pending -= 1

    async def _send_and_commit(self, channels: Channels) -> None:
        """A broker that has not given up a transaction commits it, whatever its half message
        says.
        """
        self._sent += 1
        address, body, rules = (
            self._world.master.address,
            f"strange {self._sent}",
            self._world.rules,
        )
        try:
            half = await channels.call(address, self._half(body), CALL_MS)
        except RoquetError:
            return  # it may be stored, and is given up then
        assert half.code == ResponseCode.SUCCESS, f"{body} is not taken: {half.remark}"
        await asyncio.sleep(
            self._chance.uniform(0, (rules.checks_max - 2) * rules.period_ms / 1000)
        )
        is_unsure = False
        while True:
            try:
                answer = await channels.call(address, _commit(half), CALL_MS)
            except RoquetError:
                is_unsure = True
                await asyncio.sleep(PAUSE_S)
                continue
            break
        if is_unsure and answer.code != ResponseCode.SUCCESS:
            self.unsure.add(body)
            return
        assert answer.code == ResponseCode.SUCCESS, f"{body} is not committed: {answer.remark}"
        self.committed.add(body)

    def _half(self, body: str) -> Command:
        pairs = {m.TRAN_MSG: "true", m.PRODUCER_GROUP: GROUP, **self._strange()}
        fields = {
            "producerGroup": GROUP, "topic": TOPIC, "defaultTopic": "TBW102", "defaultTopicQueueNums": "1",
            "queueId": "0", "sysFlag": str(m.TRANSACTION_PREPARED), "bornTimestamp": "1", "flag": "0",
            "properties": m.join_properties(pairs), "unitMode": "false",
        }  # fmt: skip
        return Command(RequestCode.SEND_MESSAGE, fields, body.encode())

    def _strange(self) -> dict[str, str]:
        """Numbers that are none, and what a message says that was asked about once: as if it were
        copied from one.
        """
        chance = self._chance
        numbers = (m.CHECK_IMMUNITY_SECONDS, m.FIRST_HALF_OFFSET, m.CHECK_TIMES)
        pairs = {chance.choice(numbers): chance.choice(NO_NUMBERS)}
        if chance.random() < 0.5:
            pairs[m.FIRST_HALF_OFFSET] = str(self._another())
            pairs[m.CHECK_TIMES] = chance.choice(("0", "1", "14"))
        return pairs

    def _another(self) -> int:
        """Where a half message stands, most likely one whose transaction is open."""
        broker, chance = self._world.master.broker, self._chance
        if broker is None:
            return 0
        end = broker.store.max_offset(m.HALF_TOPIC, 0)
        offsets = [half.transaction for half in broker.parts.halves.open.all()] or [end]
        return chance.choice((chance.choice(offsets), chance.randrange(max(1, end - 20), end + 2)))

    def check(self, *, troubles: int) -> None:
        """When none is pending: what was committed has come; each trouble may make one come once
        more.
        """
        assert not self.pending
        came = delivered(self._world.broker, TOPIC)
        assert self.committed <= came.keys() <= self.committed | self.unsure
        assert max(came.values()) <= 1 + troubles


def _commit(half: Command) -> Command:
    _, _, at = m.parse_offset_message_id(half.fields["msgId"])
    fields = {
        "producerGroup": GROUP, "msgId": "m", "commitOrRollback": COMMIT,
        "tranStateTableOffset": half.fields["queueOffset"], "commitLogOffset": at,
    }  # fmt: skip
    return Command(
        RequestCode.END_TRANSACTION, {name: to_text(value) for name, value in fields.items()}
    )
