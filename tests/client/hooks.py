"""Hooks that record what they are told."""

from __future__ import annotations

from roquet.client.hook import CallEvent, ConsumeEvent, Hook, SendEvent


class SendsSeen(Hook):
    """Records sends, and gives each message a property."""

    def __init__(self) -> None:
        self.begun: list[SendEvent] = []
        self.ended: list[SendEvent] = []

    def before_send(self, event: SendEvent) -> None:
        self.begun.append(event)
        event.add_properties({"trace": str(len(self.begun))})

    def after_send(self, event: SendEvent) -> None:
        self.ended.append(event)


class DeliveriesSeen(Hook):
    """Records deliveries."""

    def __init__(self) -> None:
        self.begun: list[ConsumeEvent] = []
        self.ended: list[ConsumeEvent] = []

    def before_consume(self, event: ConsumeEvent) -> None:
        self.begun.append(event)

    def after_consume(self, event: ConsumeEvent) -> None:
        self.ended.append(event)

    def outcomes(self) -> list[str | None]:
        return [event.outcome and event.outcome.value for event in self.ended]


class CallsSeen(Hook):
    """Records requests of some codes."""

    def __init__(self, *codes: int) -> None:
        self.codes = codes
        self.begun: list[CallEvent] = []
        self.ended: list[CallEvent] = []

    def before_call(self, event: CallEvent) -> None:
        if event.code in self.codes:
            self.begun.append(event)

    def after_call(self, event: CallEvent) -> None:
        if event.code in self.codes:
            self.ended.append(event)
