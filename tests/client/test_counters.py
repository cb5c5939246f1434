"""What a producer counts as a failed send, and in which bucket a latency is."""

from __future__ import annotations

import asyncio

import pytest

from roquet.client.counters import BOUNDS_MS, SendCounters
from roquet.errors import CallTimeout, ConnectionClosed, MessageError, RouteNotFound


@pytest.mark.parametrize(
    "error", [CallTimeout("t"), ConnectionClosed("c"), RouteNotFound("r"), asyncio.CancelledError()]
)
def test_what_became_of_a_send_is_counted_by_its_name(error: BaseException) -> None:
    counters = SendCounters()
    counters.failed(error)
    counters.failed(error, 2)
    assert counters.failures == {type(error).__name__: 3}


@pytest.mark.parametrize("error", [MessageError("m"), KeyError("k"), ZeroDivisionError()])
def test_arguments_and_functions_of_the_application_are_no_failures(error: Exception) -> None:
    counters = SendCounters()
    counters.failed(error)
    assert counters.failures == {}


def test_stored_messages_whose_sends_were_cancelled_are_taken_back() -> None:
    counters = SendCounters()
    counters.sent, counters.sent_bytes = 5, 50
    counters.cancelled(2, 20)
    assert (counters.sent, counters.sent_bytes) == (3, 30)


def test_a_latency_at_the_end_of_a_bucket_belongs_to_it() -> None:
    counters = SendCounters()
    counters.unsorted_s += [0.001, 0.0011, 100.0]
    counters.sort()
    counts = counters.latency_counts
    assert (counts[0], counts[1], counts[len(BOUNDS_MS)]) == (1, 1, 1)
    assert counters.unsorted_s == []
