"""When a failed send is tried again, and what the last error says."""

from __future__ import annotations

import pickle

import pytest

from roquet.client._send.tries import Tries
from roquet.errors import CallTimeout, ConnectionClosed, ResponseError, RoquetError, RouteNotFound

REFUSED = ResponseError(14, "full", "b:1")
CLOSED = ConnectionClosed("cannot connect")
SILENT = CallTimeout("no answer")


def after(*errors: RoquetError, retries: int | None = None, timeout_s: float = 3.0) -> Tries:
    """The tries of a send that began at 0 s."""
    tries = Tries(timeout_s, retries)
    for error in errors:
        tries.failed(error)
    return tries


def test_waits_grow_to_a_second_and_the_last_leaves_time_for_a_try() -> None:
    tries, now_s, tried_at = after(CLOSED), 0.0, [0.0]
    while (wait_s := tries.wait_s(now_s, is_broker_left=False)) is not None:
        now_s += wait_s
        tried_at.append(now_s)
        tries.failed(CLOSED)
    assert tried_at == pytest.approx([0.0, 0.1, 0.3, 0.7, 1.5, 2.5, 2.9])


def test_while_another_broker_is_left_there_is_no_wait() -> None:
    assert after(CLOSED).wait_s(0.0, is_broker_left=True) == 0.0


def test_after_a_wait_all_brokers_may_be_tried_again() -> None:
    tries = after(CLOSED)
    tries.failed_brokers.add("a")
    tries.wait_s(0.0, is_broker_left=True)
    assert tries.failed_brokers == {"a"}
    tries.wait_s(0.0, is_broker_left=False)
    assert tries.failed_brokers == set()


@pytest.mark.parametrize("is_broker_left", [True, False])
@pytest.mark.parametrize("now_s", [3.0, 4.0])
def test_when_the_time_is_over_there_is_no_further_try(now_s: float, is_broker_left: bool) -> None:
    assert after(CLOSED).wait_s(now_s, is_broker_left=is_broker_left) is None


def test_a_time_that_is_too_short_for_a_wait_has_no_retry_at_the_same_broker() -> None:
    tries = after(CLOSED, timeout_s=0.05)
    assert tries.wait_s(0.0, is_broker_left=False) is None
    assert tries.wait_s(0.0, is_broker_left=True) == 0.0


def test_a_number_of_retries_bounds_them() -> None:
    tries = after(CLOSED, retries=1)
    assert tries.wait_s(0.0, is_broker_left=True) == 0.0
    tries.failed(CLOSED)
    assert tries.wait_s(0.0, is_broker_left=True) is None
    assert after(CLOSED, retries=0).wait_s(0.0, is_broker_left=False) is None


def test_the_error_of_a_single_try_is_as_it_is() -> None:
    assert after(REFUSED).take_error() is REFUSED


def test_the_last_error_says_how_many_tries_there_were() -> None:
    error = after(CLOSED, CLOSED, REFUSED).take_error()
    assert isinstance(error, ResponseError)
    assert str(error) == "b:1 answered code 14: full (3 tries)"
    assert (error.code, error.remark, error.address) == (14, "full", "b:1")
    assert str(pickle.loads(pickle.dumps(error))) == str(error)


def test_an_error_that_several_sends_share_stays_as_it_is() -> None:
    for _ in range(2):
        assert str(after(CLOSED, CLOSED).take_error()) == "cannot connect (2 tries)"
    assert str(CLOSED) == "cannot connect"


def test_a_timeout_of_the_last_try_names_the_refusal_before_it() -> None:
    error = after(REFUSED, SILENT).take_error()
    assert isinstance(error, CallTimeout)
    assert str(error) == "no answer (2 tries; the one before: b:1 answered code 14: full)"
    assert str(after(SILENT, SILENT).take_error()) == "no answer (2 tries)"


def test_a_route_that_is_gone_meanwhile_does_not_hide_what_the_broker_did() -> None:
    gone = RouteNotFound("no master")
    assert str(after(CLOSED, gone, gone).take_error()) == "cannot connect (3 tries)"
    assert str(after(gone, gone).take_error()) == "no master (2 tries)"
