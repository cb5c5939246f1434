"""PURE: what is measured, and with which of Apache's benchmark classes."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Final

TOPIC: Final = "BenchmarkTest"
"""The classes' own default; every broker creates it, with 1024 queues."""
GROUP: Final = "benchmark_consumer"
PACKAGE: Final = "org.apache.rocketmq.example.benchmark"
JSON_SUFFIX: Final = "-json"
JSON: Final = "--json"
LIMIT: Final = "--limit"
REPORT_MS: Final = 1000


@dataclass(frozen=True, slots=True)
class Load:
    """One benchmark class and its arguments.

    :param rate: the figure of its reports that counts messages per second.
    :param failures: the figures of its reports that count what went wrong since the start.
    :param drains: it reads a backlog that is written before it starts.
    :param settings: for `Launcher.java`, where the class needs what its arguments do not reach.
    """

    name: str
    title: str
    java_class: str
    arguments: tuple[str, ...] = ()
    rate: str = "Send TPS"
    failures: tuple[str, ...] = ("Send Failed", "Response Failed")
    drains: bool = False
    settings: tuple[str, ...] = ()

    def command(self, name_server: str, topic: str = TOPIC) -> list[str]:
        """The class and its arguments, as `java` takes them."""
        common = ["-n", name_server, "-t", topic, "-ri", str(REPORT_MS)]
        return [f"{PACKAGE}.{self.java_class}", *common, *self.arguments]

    def with_json_headers(self) -> Load:
        return replace(
            self,
            name=self.name + JSON_SUFFIX,
            title=f"{self.title}, JSON headers",
            settings=(*self.settings, JSON),
        )


LOADS: Final = (
    Load("sync128", "sync, 64 threads, 128 B", "Producer", ("-w", "64", "-s", "128")),
    Load("sync1k", "sync, 64 threads, 1 KiB", "Producer", ("-w", "64", "-s", "1024")),
    Load(
        "async128",
        "async, 64 threads, 128 B, 1024 under way",
        "Producer",
        ("-w", "64", "-s", "128", "-y", "true"),
        settings=(LIMIT,),
    ),
    Load(
        "unlimited128",
        "async, 64 threads, 128 B, no limit",
        "Producer",
        ("-w", "64", "-s", "128", "-y", "true"),
    ),
    Load(
        "keyed",
        "sync, 64 threads, 128 B, key, 5 tags",
        "Producer",
        ("-w", "64", "-s", "128", "-k", "true", "-l", "5"),
    ),
    Load(
        "batch",
        "batches of 16 × 128 B, 64 threads",
        "BatchProducer",
        ("-w", "64", "-s", "128", "-b", "16"),
        "Send MPS",
        ("Send Message Failed",),
    ),
    Load(
        "consume",
        "consumer, 20 threads, drains a backlog of 128 B",
        "Consumer",
        ("-w", "20", "-g", GROUP),
        "Consume TPS",
        ("Consume Fail",),
        drains=True,
    ),
)
DEFAULT: Final = "sync128,sync128-json,sync1k,async128,keyed,batch,consume"


def find_loads(names: str) -> list[Load]:
    """The loads of these names, joined by commas; `-json` behind a name asks for JSON headers.

    :raises ValueError: there is no such load.
    """
    return [_find(name.strip()) for name in names.split(",")]


def _find(name: str) -> Load:
    for load in LOADS:
        if name == load.name:
            return load
        if name == load.name + JSON_SUFFIX:
            return load.with_json_headers()
    known = ", ".join(load.name for load in LOADS)
    raise ValueError(f"no load {name!r}; there are {known}, each also with {JSON_SUFFIX} behind it")
