"""How long the requests of a close may take, however many servers do not answer."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Final

from roquet.common.loop_time import now_s

CLOSE_S: Final = 5.0
"""How long all requests of a close may take together, of however many clients. A broker that has
become silent is found out by the first request to it, which takes 3 s (`offsets.TIMEOUT_MS`,
`heartbeats.TIMEOUT_MS`); the rest is for what follows at the brokers that answer."""
LEAST_S: Final = 1.0
"""What each request to a server that answers has in any case, even if a listener took the rest."""
AWAY_S: Final = 0.05
"""What a request has to a server that is known not to answer. It is sent all the same: a broker
that only stands still reads it later."""

_until_s: ContextVar[float | None] = ContextVar("_until_s", default=None)
"""In a close and the tasks that it begins: the time of the event loop when it should be over."""


@contextmanager
def close_limit(until_s: float | None = None) -> Iterator[float]:
    """What is called in this block belongs to a close; to the outer one, if there is one.

    :param until_s: when a close that has begun elsewhere should be over. None begins one.
    :yields: when the close should be over.
    """
    outer_until_s = _until_s.get()
    if outer_until_s is not None:
        yield outer_until_s
        return
    if until_s is None:
        until_s = now_s() + CLOSE_S
    token = _until_s.set(until_s)
    try:
        yield until_s
    finally:
        _until_s.reset(token)


def is_closing() -> bool:
    """Whether the caller belongs to a close."""
    return _until_s.get() is not None


def limited_s(seconds: float, *, is_away: bool = False) -> float:
    """How long the caller may wait: `seconds`, or less if it belongs to a close.

    :param is_away: whether it waits for a server that is known not to answer.
    """
    until_s = _until_s.get()
    if until_s is None:
        return seconds
    return min(seconds, AWAY_S if is_away else max(LEAST_S, until_s - now_s()))
