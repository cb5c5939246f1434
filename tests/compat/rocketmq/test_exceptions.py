"""Errors of roquet come under the names of rocketmq-client-python."""

from __future__ import annotations

import pytest

from roquet.compat.rocketmq.exceptions import (
    NullPointerException,
    ProducerSendSyncFailed,
    RocketMQException,
    raised_as,
)
from roquet.errors import CallTimeout, RoquetError


def test_an_error_of_roquet_is_the_cause_and_gives_the_text() -> None:
    with (
        pytest.raises(ProducerSendSyncFailed, match="no answer") as raised,
        raised_as(ProducerSendSyncFailed),
    ):
        raise CallTimeout("no answer")

    assert str(raised.value) == "no answer"
    assert isinstance(raised.value.__cause__, CallTimeout)
    assert isinstance(raised.value, RocketMQException)
    assert isinstance(raised.value, RoquetError)


@pytest.mark.parametrize("error", [NullPointerException("null"), ValueError("other")])
def test_other_errors_pass_through(error: Exception) -> None:
    with pytest.raises(type(error)) as raised, raised_as(ProducerSendSyncFailed):
        raise error

    assert raised.value is error
