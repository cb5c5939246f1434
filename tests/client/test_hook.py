"""What a hook may be, and what it may do with a message."""

from __future__ import annotations

from typing import Any

import pytest

from roquet.client.config import ClientConfig
from roquet.client.hook import CallEvent, Hook, SendEvent
from roquet.errors import ConfigError, MessageError
from roquet.protocol.records.message import Message


class Waiting(Hook):
    async def before_call(self, event: CallEvent) -> None:  # type: ignore[override]
        pass


@pytest.mark.parametrize(
    ("given", "said"),
    [
        (Hook(), "hooks is <.*>: give a list of hooks"),
        ([print], "hooks: <built-in function print> is no hook"),
        ([Hook], "hooks: <class .*> is no hook"),
        ([Waiting()], "hooks: Waiting.before_call is a coroutine function"),
    ],
)
def test_what_is_no_hook_is_refused(given: Any, said: str) -> None:
    with pytest.raises(ConfigError, match=said):
        ClientConfig("ns:9876", hooks=given)


def test_a_config_has_its_hooks_as_a_tuple() -> None:
    hooks = [Hook(), Hook()]
    assert ClientConfig("ns:9876", hooks=hooks).hooks == tuple(hooks)


def test_properties_are_added_to_all_messages() -> None:
    event = SendEvent("c", "P", [Message("T", b"1", properties={"a": "1"}), Message("T", b"2")])
    event.add_properties({"b": "2"})
    assert [each.properties for each in event.messages] == [{"a": "1", "b": "2"}, {"b": "2"}]


def test_a_property_that_is_not_allowed_changes_nothing() -> None:
    event = SendEvent("c", "P", [Message("T", b"1")])
    with pytest.raises(MessageError):
        event.add_properties({"KEYS": "x"})
    assert event.messages[0].properties == {}


def test_properties_for_which_a_message_has_no_room_change_nothing() -> None:
    """A hook must not make a send fail that brokers would take."""
    full = Message("T", b"1", properties={"a": "x" * 32_600})
    event = SendEvent("c", "P", [Message("T", b"2"), full])
    with pytest.raises(MessageError, match="allowed are 32767"):
        event.add_properties({"traceparent": "0" * 55})
    assert [*event.messages] == [Message("T", b"2"), full]
