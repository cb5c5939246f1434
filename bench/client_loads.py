"""PURE: the clients that are compared, and what each of them does.

The program of a client is started with `NAME_SERVER TOPIC WAY UNDER_WAY`. Each line on its standard
input is a piece of work, `seconds S` or `count N` (requests, or messages to consume). For each it
prints one line: messages, seconds, failures, and ms from its first statement behind the imports to
the first message that was acknowledged.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import Final


class Client(StrEnum):
    ROQUET = "roquet"
    UVLOOP = "roquet-uvloop"
    JAVA = "java"
    CPP = "cpp"
    GO = "go"


class Way(StrEnum):
    """How a program does its work; roquet's tasks wait for their sends in all but `BATCH`."""

    WAITING = "waiting"
    ASYNC = "async"
    BATCH = "batch"
    LINGER = "linger"
    CONSUME = "consume"


class Kind(StrEnum):
    """What is measured: a window behind a warm-up, or a process from its start."""

    SEND = "send"
    CONSUME = "consume"
    FIRST = "first"
    COLD = "cold"


BODY_SIZE: Final = 1024
STORED: Final = 100_000
"""Messages, that a consumer finds and that a cold script sends."""
BATCH: Final = 32
GATHERED: Final = 1000
"""Sends at a time that are gathered; `linger_ms` waits for others if there are fewer. And messages
of a large batch: some 1 MiB, of 4 MiB that a request may have."""
NO_BATCHES: Final = tuple(client for client in Client if client is not Client.CPP)
"""The C++ client compresses a batch as a whole, and brokers store it as one message."""


@dataclass(frozen=True, slots=True)
class Load:
    """:param under_way: sends at a time, messages of a batch, or messages given to a handler."""

    name: str
    title: str
    kind: Kind
    way: Way
    under_way: int
    clients: tuple[Client, ...] = tuple(Client)

    @property
    def count(self) -> int:
        """Requests, or messages to consume, for `STORED` messages."""
        return STORED // self.under_way if self.way is Way.BATCH else STORED


LOADS: Final = (
    Load("one", "one by one", Kind.SEND, Way.WAITING, 1),
    Load("waiting64", "64 tasks or threads, each waits", Kind.SEND, Way.WAITING, 64),
    Load("async64", "64 under way, callbacks", Kind.SEND, Way.ASYNC, 64),
    Load("batch32", "batches of 32, one by one", Kind.SEND, Way.BATCH, BATCH, NO_BATCHES),
    Load("consume", "consume, message by message", Kind.CONSUME, Way.CONSUME, 1),
    Load("consume32", "consume, lists of up to 32", Kind.CONSUME, Way.CONSUME, 32, NO_BATCHES),
    Load("first", "the first message of a process", Kind.FIRST, Way.WAITING, 1),
    Load("cold", f"a script that sends {STORED:,} messages", Kind.COLD, Way.WAITING, 64),
    Load(
        "cold_linger",
        "the same, gathered",
        Kind.COLD,
        Way.LINGER,
        GATHERED,
        (Client.ROQUET, Client.UVLOOP, Client.JAVA),
    ),
    Load("cold_batch", "the same, lists of 1000", Kind.COLD, Way.BATCH, GATHERED, NO_BATCHES),
)


def way_of(load: Load, client: Client) -> Way:
    """The load's own; one by one, a cold Java has its faster way."""
    is_one_by_one = load.kind is Kind.COLD and load.way is not Way.BATCH
    return Way.ASYNC if is_one_by_one and client is Client.JAVA else load.way


def find_loads(names: str) -> list[Load]:
    """:raises ValueError: there is no such load."""
    known = {load.name: load for load in LOADS}
    try:
        return [known[name.strip()] for name in names.split(",")]
    except KeyError as missing:
        raise ValueError(f"no load {missing}; there are {', '.join(known)}") from None
