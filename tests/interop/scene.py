"""What one scenario has at hand: topics and groups that nobody else uses, clients, and the ground
they are on.
"""

from __future__ import annotations

import itertools
import time
from collections.abc import Callable, Collection, Mapping
from contextlib import ExitStack, suppress
from types import TracebackType
from typing import Any, Self, TypeVar

from roquet.protocol.json.dialect import load
from tests.interop import wire
from tests.interop.apache import Version, wait_until
from tests.interop.ground import BROKER, Ground
from tests.interop.stage import JavaError, Line, Stage

WAIT_SECONDS = 30.0
"""As long as something may take that is expected to come."""
QUIET_SECONDS = 1.5
"""As long as something is waited for that is expected not to come."""
ROUTE = 105
Lines = list[Line]
A = TypeVar("A", bound="Actor")


class Actor:
    """A client on the stage."""

    def __init__(self, stage: Stage, name: str) -> None:
        self._stage = stage
        self.name = name

    def call(self, verb: str, **values: object) -> Any:
        return self._stage.call(verb, name=self.name, **values)

    def stop(self) -> None:
        """An orderly end; the second time it does nothing."""
        self.call("stop")

    def told(self, event: str, count: int = 0, timeout_s: float = WAIT_SECONDS) -> Lines:
        """What it told of so far, or when it is so many."""
        return self._stage.wait_events(self.name, event, count, timeout_s)


class Producer(Actor):
    max_offset: Callable[[str, int], int]

    def send(self, topic: str, count: int = 1, /, **options: object) -> Lines:
        """The results; `body`, `keys` and user properties may say `{i}` for the number of the
        message.

        Apache's broker puts what it stored into queues a little later; this waits for that.
        """
        results: Lines = self.call("send", topic=topic, count=count, broker=BROKER, **options)
        if "delay" not in options:
            ends = {
                line["queueId"]: line["queueOffset"] + len(line["msgId"].split(","))
                for line in results
            }
            wait_until(
                lambda: all(self.max_offset(topic, queue) >= ends[queue] for queue in ends),
                f"entries {ends}",
            )
        return results

    def transact(self, topic: str, local: str, count: int = 1, /, **options: object) -> Lines:
        answer: Lines = self.call("transact", topic=topic, local=local, count=count, **options)
        return answer

    def request(self, topic: str, body: str, /, **options: object) -> Line:
        answer: Line = self.call("request", topic=topic, body=body, **options)
        return answer


class Push(Actor):
    def messages(self, count: int = 0, timeout_s: float = WAIT_SECONDS) -> Lines:
        """The deliveries so far, or as soon as there are so many; fewer when the time is over."""
        return self.told("message", count, timeout_s)

    def bodies(self, count: int, quiet_s: float = 0) -> list[str]:
        """The bodies of so many deliveries, sorted, and of those that come too many within a
        while.
        """
        self.messages(count)
        time.sleep(quiet_s)
        return sorted(line["body"] for line in self.messages())

    def assigned(self, topic: str) -> set[int]:
        return set(self.call("assigned", topic=topic))

    def wait_assigned(self, topic: str, queues: Collection[int]) -> None:
        wait_until(
            lambda: self.assigned(topic) == set(queues),
            f"queues {queues} of {topic} at {self.name}",
        )

    @property
    def client_id(self) -> str:
        return str(self.call("id"))


class Pull(Actor):
    def take(self, topic: str, queue: int, offset: int, most: int = 32, **options: object) -> Line:
        """Status, next offset, bounds and messages."""
        answer: Line = self.call(
            "take", topic=topic, broker=BROKER, queue=queue, offset=offset, most=most, **options
        )
        return answer

    def ask(self, verb: str, topic: str, queue: int = 0, **values: object) -> Any:
        """Any other question about a queue."""
        return self.call(verb, topic=topic, broker=BROKER, queue=queue, **values)


class LitePull(Actor):
    def poll(self, count: int, timeout_s: float = WAIT_SECONDS) -> Lines:
        """At least so many messages; fewer when the time is over."""
        deadline, got = time.monotonic() + timeout_s, Lines()
        while len(got) < count and time.monotonic() < deadline:
            got += self.call("poll", timeout=500)
        return got

    def ask(self, verb: str, topic: str, queue: int = 0, **values: object) -> Any:
        return self.call(verb, topic=topic, broker=BROKER, queue=queue, **values)


class Admin(Actor):
    def command(self, *words: object) -> str:
        """What an mqadmin command printed. :raises AssertionError: it told of an exception."""
        said = self.call("command", **{f"arg{i}": word for i, word in enumerate(words)})
        assert "Exception" not in said["err"], said["err"]
        return str(said["out"])

    def rows(self, *words: object) -> list[list[str]]:
        return [line.split() for line in self.command(*words).splitlines()]

    def invoke(self, method: str, *arguments: object) -> Any:
        """What any method of the admin client gives, as its JSON says it. :raises JavaError: it
        failed.
        """
        answer = self.call(
            "invoke", method=method, **{f"arg{i}": value for i, value in enumerate(arguments)}
        )
        return None if answer is None else load(answer)


class Scene:
    """One scenario's surroundings; its clients are gone after it."""

    def __init__(self, ground: Ground, stage: Stage, title: str) -> None:
        self.ground = ground
        self._stage = stage
        self._title = "".join(word.capitalize() for word in title.split("_"))[:60]
        self._numbers = itertools.count(1)
        self._clients = ExitStack()

    @property
    def version(self) -> Version:
        return self._stage.version

    @property
    def namesrv(self) -> str:
        return self.ground.namesrv

    @property
    def broker(self) -> str:
        """The broker's address."""
        return self.ground.broker.address

    def name(self) -> str:
        """One that nobody else has."""
        return f"{self._title}-{str(self.version).replace('.', '-')}-{next(self._numbers)}"

    def topic(self, queues: int = 1) -> str:
        """A new topic."""
        name = self.name()
        self.ground.create_topic(name, queues)
        return name

    def group(self, **settings: object) -> str:
        """A new group, made before where it has settings, such as `retryMaxTimes`."""
        name = f"G-{self.name()}"
        if settings:
            self.make_group(name, **settings)
        return name

    def make_group(self, name: str, **settings: object) -> None:
        config = {
            "groupName": name,
            "consumeEnable": True,
            "consumeFromMinEnable": True,
            "consumeBroadcastEnable": True,
            "retryQueueNums": 1,
            "retryMaxTimes": 16,
            "brokerId": 0,
            "whichBrokerWhenConsumeSlowly": 1,
            "notifyConsumerIdsChangedEnable": True,
        }
        assert self.ask(200, body=wire.json_body(config | settings)).code == 0

    # clients

    def producer(self, **options: object) -> Producer:
        """A producer; with `check`, one of transactions."""
        producer = self._enter("producer", Producer, {"group": f"P-{self.name()}"} | options)
        producer.max_offset = self.max_offset
        return producer

    def push(self, group: str, /, *topics: str, **options: object) -> Push:
        """A push consumer that consumes with two threads, unless it is told otherwise."""
        own = (
            {"instance": self.name()} if options.get("broadcast") else {}
        )  # Else such clients are one and the same.
        return self._enter(
            "push", Push, {"group": group, "topics": ",".join(topics)} | own | options
        )

    def pull(self, group: str = "", **options: object) -> Pull:
        return self._enter("pull", Pull, {"group": group or self.group()} | options)

    def lite(self, group: str, topic: str = "", **options: object) -> LitePull:
        return self._enter(
            "lite", LitePull, {"group": group, **({"topics": topic} if topic else {})} | options
        )

    def admin(self) -> Admin:
        return self._enter("admin", Admin, {})

    def _enter(self, verb: str, kind: type[A], options: Mapping[str, object]) -> A:
        actor = kind(self._stage, self.name())
        self._clients.callback(_stop, actor)
        actor.call(verb, namesrv=self.namesrv, **options)
        return actor

    # questions

    def ask(
        self, code: int, fields: Mapping[str, object] | None = None, body: bytes = b""
    ) -> wire.Answer:
        """One request to the broker over a connection of its own."""
        texts = {name: str(value) for name, value in (fields or {}).items()}
        return wire.ask(self.broker, code, texts, body, timeout_s=WAIT_SECONDS)

    def max_offset(self, topic: str, queue: int = 0) -> int:
        return int(self.ask(30, {"topic": topic, "queueId": queue}).header["extFields"]["offset"])

    def committed(self, group: str, topic: str, queue: int = 0) -> int | None:
        """What the broker has of a group's progress; None: nothing."""
        answer = self.ask(14, {"consumerGroup": group, "topic": topic, "queueId": queue})
        return int(answer.header["extFields"]["offset"]) if answer.code == 0 else None

    def has_route(self, topic: str) -> bool:
        """Whether the name server knows the topic: a broker tells it a moment after it has made
        one.
        """
        return wire.ask(self.namesrv, ROUTE, {"topic": topic}).code == 0

    def wait(
        self, condition: Callable[[], bool], what: str, timeout_s: float = WAIT_SECONDS
    ) -> None:
        wait_until(condition, what, timeout_s)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._clients.close()


def _stop(actor: Actor) -> None:
    with suppress(JavaError, TimeoutError):
        actor.stop()
