"""The limits of a server, and what their settings mean."""

from __future__ import annotations

import pytest

from roquet.protocol.remoting.frame import FRAME_SIZE_MAX
from roquet.transport.limits import CALLER, PeerLimits


def test_times_are_given_in_the_units_of_their_settings() -> None:
    limits = PeerLimits(server_channel_max_idle_time_seconds=1.5, partial_request_timeout=2500)

    assert (limits.idle_s, limits.partial_s) == (1.5, 2.5)


def test_one_connection_may_send_the_largest_frame_and_no_more_than_all_may() -> None:
    limits = PeerLimits()

    assert limits.request_bytes_per_connection_max == FRAME_SIZE_MAX <= limits.request_bytes_max
    assert limits.answer_bytes_per_connection_max <= limits.answer_bytes_max


@pytest.mark.parametrize("name", ["answer_bytes_max", "request_bytes_max"])
def test_connections_that_this_process_opened_are_limited_in_time_only(name: str) -> None:
    assert getattr(CALLER, name) > 1 << 60
    assert (CALLER.idle_s, CALLER.connections_max) == (PeerLimits().idle_s, 0)
