"""The work of `bench.client` with the C++ client that PyPI's `rocketmq` has inside: NAME_SERVER TOPIC
WAY UNDER_WAY. The ways and the words on standard input are those of `bench/client_loads.py`.
"""

from __future__ import annotations

import os
import sys
import threading
from collections.abc import Callable
from time import perf_counter

from rocketmq.client import Message, Producer, PushConsumer, RecvMessage

BEGAN = perf_counter()
"""Behind the imports."""
BODY = b"x" * 1024


class Sending:
    """Sends to one topic until it is told to end; counts what was acknowledged."""

    def __init__(self, producer: Producer, topic: str, under_way: int) -> None:
        self._producer = producer
        self._topic = topic
        self._under_way = under_way
        self._first_ms = 0.0
        self._failed = 0

    def waiting(self, goes_on: Callable[[], bool]) -> int:
        """So many threads, each of which waits for its answers."""
        counts: list[int] = []
        threads = [
            threading.Thread(target=lambda: counts.append(self._one_by_one(goes_on)))
            for _ in range(self._under_way)
        ]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        return sum(counts)

    def _one_by_one(self, goes_on: Callable[[], bool]) -> int:
        sent = 0
        while goes_on():
            try:
                self._producer.send_sync(self._message())
            except Exception as error:
                self._fail(error)
                continue
            self._note_first()
            sent += 1
        return sent

    def asynchronous(self, goes_on: Callable[[], bool]) -> int:
        """One thread sends, the library's threads take the answers."""
        free = threading.Semaphore(self._under_way)
        counts: list[int] = []

        def answered(result: object) -> None:
            self._note_first()
            counts.append(1)
            free.release()

        def refused(error: Exception) -> None:
            self._fail(error)
            free.release()

        while goes_on():
            free.acquire()
            self._producer.send_async(self._message(), answered, refused)
        for _ in range(self._under_way):
            free.acquire()
        return len(counts)

    def say(self, messages: int, began_s: float) -> None:
        print(messages, perf_counter() - began_s, self._failed, self._first_ms, flush=True)
        self._failed = 0

    def _message(self) -> Message:
        message = Message(self._topic)
        message.set_body(BODY)
        return message

    def _note_first(self) -> None:
        if not self._first_ms:
            self._first_ms = (perf_counter() - BEGAN) * 1e3

    def _fail(self, error: Exception) -> None:
        if not self._failed:
            print(repr(error), file=sys.stderr)
        self._failed += 1


def send(names: str, topic: str, way: str, under_way: int) -> None:
    producer = Producer("bench-cpp")
    producer.set_namesrv_addr(names)
    producer.start()
    sending = Sending(producer, topic, under_way)
    work = sending.asynchronous if way == "async" else sending.waiting
    for line in sys.stdin:
        word, argument = line.split()
        began_s = perf_counter()
        if word == "count":
            left = iter(range(int(argument)))
            sent = work(lambda left=left: next(left, None) is not None)  # type: ignore[misc]
        else:
            until_s = began_s + float(argument)
            sent = work(lambda until_s=until_s: perf_counter() < until_s)  # type: ignore[misc]
        sending.say(sent, began_s)
    producer.shutdown()


def consume(names: str, topic: str) -> None:
    """All that is stored, as a group of its own each time."""
    for number, line in enumerate(sys.stdin):
        count = int(line.split()[1])
        began_s = perf_counter()
        group = f"bench-cpp-{os.getpid()}-{number}"
        consumer = PushConsumer(group)
        consumer.set_namesrv_addr(names)
        consumer.set_instance_name(group)
        sizes: list[int] = []
        is_over = threading.Event()

        def take(
            message: RecvMessage, sizes: list[int] = sizes, over: threading.Event = is_over
        ) -> None:
            sizes.append(len(message.body))
            if len(sizes) >= count:  # noqa: B023 - of this round: the consumer ends with it
                over.set()

        consumer.subscribe(topic, take)
        consumer.start()
        is_over.wait()
        if sum(sizes) < count * len(BODY):
            raise RuntimeError(f"{sum(sizes)} bytes")
        print(count, perf_counter() - began_s, 0, 0.0, flush=True)
        consumer.shutdown()


def main() -> None:
    names, topic, way, under_way = sys.argv[1:]
    if way == "consume":
        consume(names, topic)
    else:
        send(names, topic, way, int(under_way))


if __name__ == "__main__":
    main()
