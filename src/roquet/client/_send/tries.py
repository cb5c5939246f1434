"""PURE: the failed tries of one send, and when the next one is made.

See docs/protocol/producing.md#what-a-client-tries-again.
"""

from __future__ import annotations

from copy import copy
from dataclasses import dataclass, field
from typing import Final

from roquet.errors import CallTimeout, RoquetError, RouteNotFound

WAIT_S_MIN: Final = 0.1
WAIT_S_MAX: Final = 1.0
"""The first wait while no other broker is left, and the longest. Each is twice the one before."""
WAIT_S_LEAST: Final = 0.01
LAST_TRY_S: Final = 0.1
"""A wait leaves this last part of the time, so that it ends with a try. A wait that would be
shorter than the least is no longer worth it."""


@dataclass(slots=True)
class Tries:
    """The failed tries of one send.

    :param deadline: the time of the event loop until which tries are made.
    :param retries: maximum number of retries; None: as many as the time allows.
    """

    deadline: float
    retries: int | None
    failed_brokers: set[str] = field(default_factory=set)
    """Those that failed since the last wait."""
    _count: int = 0
    _next_wait_s: float = WAIT_S_MIN
    _last: RoquetError | None = None
    _before: RoquetError | None = None

    def failed(self, error: RoquetError) -> None:
        """Note a failed try. That a route was not found does not hide what a broker did."""
        self._count += 1
        if self._last is None or not isinstance(error, RouteNotFound):
            self._before, self._last = self._last, error

    def not_stored(self) -> None:
        """Note a try after which the broker has the message, but not as safely as it should be."""
        self._count += 1

    def may_go_on(self, now_s: float) -> bool:
        """Whether time and number of retries allow another try.

        :param now_s: the time of the event loop.
        """
        is_last = self.retries is not None and self._count > self.retries
        return self.deadline > now_s and not is_last

    def wait_s(self, now_s: float, *, is_broker_left: bool) -> float | None:
        """How long to wait before the next try; None: no further one.

        :param now_s: the time of the event loop.
        :param is_broker_left: whether there is a broker that has not failed yet.
        """
        if not self.may_go_on(now_s):
            return None
        if is_broker_left:
            return 0.0
        wait_s = min(self._next_wait_s, self.deadline - now_s - LAST_TRY_S)
        if wait_s < WAIT_S_LEAST:
            return None
        self._next_wait_s = min(2 * self._next_wait_s, WAIT_S_MAX)
        self.failed_brokers.clear()
        return wait_s

    def take_error(self) -> RoquetError:
        """The error of the last try, which says how many tries there were.

        It is forgotten here: its traceback has the frame that has this object.
        """
        error, before = self._last, self._before
        self._last = self._before = None
        assert error is not None, "a try has failed"
        if self._count == 1:
            return error
        text = f"{error} ({self._count} tries"
        if isinstance(error, CallTimeout) and before is not None and str(before) != str(error):
            text += f"; the one before: {before}"
        # A copy: other sends may wait for the same connection, and get the same error.
        told = copy(error)
        told.args = (text + ")",)
        told.__cause__ = error.__cause__
        return told
