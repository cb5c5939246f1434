"""PURE: what a member pulls and consumes, per topic: counted as it happens, shown as rates.

Times are those of the event loop, in seconds unless a name says otherwise.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from roquet.client.metrics import TopicMetrics


SAMPLE_PERIOD_S: Final = 10.0
MINUTE_SAMPLES: Final = 7
HOUR_SAMPLES: Final = 7
"""Every 10 min one, as in Java's consumers."""
SAMPLES_PER_10_MIN: Final = 60
TIMED_EVERY: Final = 8
"""One of so many messages is timed, because reading the clock for each would cost too much."""


@dataclass(slots=True)
class TopicCounters:
    """What a member did with a topic since it began.

    `pulls` brought `pulled` messages with `pulled_bytes` of bodies. Of the messages that were
    `handed_out`, `timed` ones took the application `timed_ms`. `acked` were acknowledged; `failed`
    were to be delivered again, of which a broker took `sent_back`.
    """

    pulls: int = 0
    pull_ms: float = 0.0
    pulled: int = 0
    handed_out: int = 0
    timed: int = 0
    timed_ms: float = 0.0
    acked: int = 0
    failed: int = 0
    pulled_bytes: int = 0
    sent_back: int = 0

    def since(self, earlier: TopicCounters) -> TopicCounters:
        """What was added since `earlier`."""
        return TopicCounters(
            *(getattr(self, name) - getattr(earlier, name) for name in self.__slots__)
        )


Sample = tuple[float, TopicCounters]


@dataclass(slots=True)
class _History:
    """The counters of a topic, and what they were at earlier times, the oldest first."""

    began_s: float
    counters: TopicCounters = field(default_factory=TopicCounters)
    minute: deque[Sample] = field(init=False)
    hour: deque[Sample] = field(init=False)
    samples: int = 0

    def __post_init__(self) -> None:
        start = (self.began_s, TopicCounters())
        self.minute = deque([start], MINUTE_SAMPLES)
        self.hour = deque([start], HOUR_SAMPLES)

    def sample(self, at_s: float) -> None:
        self.samples += 1
        taken = (at_s, replace(self.counters))
        self.minute.append(taken)
        if self.samples % SAMPLES_PER_10_MIN == 0:
            self.hour.append(taken)


class MemberStatistics:
    """The counters of all topics of a member, and samples of them.

    Counting is adding to a number. Everything else happens when a sample is taken, every 10 s, and
    when an administrator asks.
    """

    def __init__(self) -> None:
        self._topics: dict[str, _History] = {}

    def of_topic(self, topic: str, at_s: float) -> TopicCounters:
        """The counters of a topic. They begin now if there are none."""
        if topic not in self._topics:
            self._topics[topic] = _History(at_s)
        return self._topics[topic].counters

    def metrics(self) -> dict[str, TopicMetrics]:
        """What the counters of each topic are now."""
        from roquet.client.metrics import TopicMetrics

        return {
            topic: TopicMetrics(
                counters.pulled,
                counters.pulled_bytes,
                counters.handed_out,
                counters.acked,
                counters.failed,
                counters.sent_back,
                counters.timed,
                counters.timed_ms,
            )
            for topic, counters in ((name, each.counters) for name, each in self._topics.items())
        }

    def sample(self, at_s: float) -> None:
        """Note what the counters are now."""
        for history in self._topics.values():
            history.sample(at_s)

    def consume_status(self, topic: str, at_s: float) -> dict[str, Any]:
        """Apache's ConsumeStatus: rates of the last minute, failed messages of the last hour."""
        history = self._topics.get(topic) or _History(at_s)
        since_s, before = history.minute[0]
        minute = history.counters.since(before)
        hour = history.counters.since(history.hour[0][1])
        timed = minute if minute.timed else hour
        elapsed_s = at_s - since_s
        return {
            "consumeFailedMsgs": hour.failed,
            "consumeFailedTPS": _ratio(minute.failed, elapsed_s),
            "consumeOKTPS": _ratio(minute.acked, elapsed_s),
            "consumeRT": _ratio(timed.timed_ms, timed.timed),
            "pullRT": _ratio(minute.pull_ms, minute.pulls),
            "pullTPS": _ratio(minute.pulled, elapsed_s),
        }


def _ratio(amount: float, of: float) -> float:
    return amount / of if of > 0 else 0.0
