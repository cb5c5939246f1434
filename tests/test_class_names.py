"""Each class has a name of its own: whoever searches for one finds no other."""

from __future__ import annotations

import ast
from collections.abc import Iterable, Mapping
from typing import Final

from tests.test_layers import MODULES

HA_STREAM: Final = ("roquet.replication.master", "roquet.replication.slave")
"""The state machines of the two ends have one shape, and each is read by itself."""

BLOCKING: Final = "`roquet.sync` has the names of the asyncio client."

COMPAT: Final = "`roquet.compat.rocketmq` has the names of rocketmq-client-python."

MIRRORS: Final[Mapping[str, tuple[tuple[str, ...], str]]] = {
    "AdminClient": (("roquet.admin.cluster", "roquet.sync.admin"), BLOCKING),
    "Client": (("roquet.cluster", "roquet.sync.cluster"), BLOCKING),
    "Consumer": (("roquet.client.consumer", "roquet.sync.consumer"), BLOCKING),
    "ConsumerOptions": (("roquet.client.consumer", "roquet.sync.consumer"), BLOCKING),
    "Message": (("roquet.compat.rocketmq.messages", "roquet.protocol.records.message"), COMPAT),
    "Phase": (HA_STREAM, "What a connection does is a question to either end."),
    "Producer": (
        ("roquet.client.producer", "roquet.compat.rocketmq.producers", "roquet.sync.producer"),
        f"{BLOCKING} {COMPAT}",
    ),
    "PullConsumer": (("roquet.client.pull_consumer", "roquet.sync.pull_consumer"), BLOCKING),
    "RebalanceListener": (
        ("roquet.client.rebalance_listener", "roquet.sync.rebalance_listener"),
        BLOCKING,
    ),
    "ReceivedMessage": (("roquet.client.received", "roquet.compat.rocketmq.messages"), COMPAT),
    "Rules": (HA_STREAM, "Either end is built with its settings."),
    "SendResult": (("roquet.client.send_result", "roquet.compat.rocketmq.producers"), COMPAT),
    "SendStatus": (("roquet.client.send_result", "roquet.compat.rocketmq.producers"), COMPAT),
    "Tick": (HA_STREAM, "Either end is told that time has passed."),
    "TransactionProducer": (
        ("roquet.client.transactions", "roquet.sync.transactions"),
        BLOCKING,
    ),
}
"""Names that several modules share on purpose: the modules, and why."""


def shared_names(modules: Iterable[tuple[str, ast.AST]]) -> dict[str, tuple[str, ...]]:
    """The names of more than one class -> the modules that define them, wherever in these."""
    found: dict[str, list[str]] = {}
    for module, tree in modules:
        for node in ast.walk(tree):
            if isinstance(node, ast.ClassDef):
                found.setdefault(node.name, []).append(module)
    return {name: tuple(where) for name, where in found.items() if len(where) > 1}


def test_two_classes_share_a_name_only_where_a_module_mirrors_another() -> None:
    shared = shared_names((name, ast.parse(path.read_bytes())) for name, path in MODULES.items())

    assert shared == {name: modules for name, (modules, _) in MIRRORS.items()}


def test_a_second_class_of_a_name_would_be_seen() -> None:
    one = ast.parse("class Own: ...\nclass Shared:\n    class Inner: ...\n")
    other = ast.parse("def f():\n    class Shared: ...\nclass Inner: ...\nclass Inner: ...\n")

    assert shared_names([("a", one), ("b", other)]) == {
        "Shared": ("a", "b"),
        "Inner": ("a", "b", "b"),
    }
