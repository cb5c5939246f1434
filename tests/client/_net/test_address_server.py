"""Clients find name servers through an HTTP server. Sockets and time are real."""

from __future__ import annotations

import asyncio
import logging
import threading
from collections.abc import Iterator
from contextlib import suppress
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest

from roquet import CallTimeout, ConnectionClosed, PeerError, Producer, sync
from roquet.client._net.address_server import AddressServer
from roquet.dev import Cluster


class HttpServer(ThreadingHTTPServer):
    """Answers each path with what `answers` has for it; a status alone is an error."""

    daemon_threads = True

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), Request)
        self.answers: dict[str, bytes | int] = {}
        self.is_silent = threading.Event()
        self.is_dripping = threading.Event()
        """It sends a byte of an endless answer now and then."""
        self.ended = threading.Event()
        self.url = f"http://127.0.0.1:{self.server_port}/rocketmq/nsaddr"


class Request(BaseHTTPRequestHandler):
    server: HttpServer

    def do_GET(self) -> None:
        if self.server.is_silent.is_set():
            self.server.ended.wait(30)
        if self.server.is_dripping.is_set():
            self.send_response(200)
            self.end_headers()
            with suppress(OSError):
                while not self.server.ended.wait(0.05):
                    self.wfile.write(b"x")
            return
        answer = self.server.answers.get(self.path, 404)
        if isinstance(answer, int):
            self.send_error(answer)
            return
        self.send_response(200)
        self.end_headers()
        self.wfile.write(answer)

    def log_message(self, *_: object) -> None:
        """Write nothing."""


@pytest.fixture
def http() -> Iterator[HttpServer]:
    with HttpServer() as server:
        thread = threading.Thread(target=server.serve_forever, args=(0.01,))
        thread.start()
        yield server
        server.ended.set()
        server.shutdown()
        thread.join()


@pytest.fixture(scope="module")
def cluster() -> Iterator[Cluster]:
    with Cluster() as cluster:
        yield cluster


async def asked(http: HttpServer, answer: bytes | int, unit_name: str | None = None) -> list[str]:
    http.answers["/rocketmq/nsaddr"] = answer
    server = AddressServer(http.url, unit_name)
    try:
        return await server.ask()
    finally:
        server.close()


@pytest.mark.parametrize(
    ("answer", "expected"),
    [
        (b"10.0.0.1:9876", ["10.0.0.1:9876"]),
        (b"  a:1;b:2;\r\nmore\n", ["a:1", "b:2"]),
        (b"[::1]:9876", ["[::1]:9876"]),
    ],
)
async def test_the_first_line_has_the_addresses(
    http: HttpServer, answer: bytes, expected: list[str]
) -> None:
    assert await asked(http, answer) == expected


@pytest.mark.parametrize("answer", [b"", b"\n", b"<html>", b"a:1;b", b"a:0", b"\xff\xfe:1x"])
async def test_any_other_answer_is_an_error_that_names_the_server(
    http: HttpServer, answer: bytes
) -> None:
    with pytest.raises(PeerError, match=f"address server {http.url}: its answer is no list"):
        await asked(http, answer)


@pytest.mark.parametrize("status", [404, 500])
async def test_a_refusal_is_told(http: HttpServer, status: int) -> None:
    with pytest.raises(ConnectionClosed, match=f"{http.url}: HTTP Error {status}"):
        await asked(http, status)


async def test_a_unit_asks_for_its_own_name_servers(http: HttpServer) -> None:
    http.answers["/rocketmq/nsaddr-u?nofix=1"] = b"u:1"
    assert await asked(http, b"a:1", "u") == ["u:1"]


async def test_a_silent_server_is_given_up(
    http: HttpServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("roquet.client._net.address_server.TIMEOUT_S", 0.2)
    http.is_silent.set()
    with pytest.raises(CallTimeout, match=f"address server {http.url}: no answer within"):
        await asked(http, b"a:1")


def threads() -> set[threading.Thread]:
    return {each for each in threading.enumerate() if each.name.startswith("roquet-address")}


async def test_a_server_that_never_ends_its_answer_costs_one_thread_for_a_while(
    http: HttpServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("roquet.client._net.address_server.TIMEOUT_S", 0.2)
    before = threads()
    http.is_dripping.set()
    server = AddressServer(http.url)
    for _ in range(4):
        with pytest.raises(CallTimeout, match=f"address server {http.url}: no answer within"):
            await server.ask()
    mine = threads() - before
    assert len(mine) == 1
    http.is_dripping.clear()
    http.answers["/rocketmq/nsaddr"] = b"a:1"
    async with asyncio.timeout(30):
        while await outcome(server) != ["a:1"]:
            pass
    server.close()
    for thread in mine:
        await asyncio.to_thread(thread.join, 30)
    assert not threads() - before


async def outcome(server: AddressServer) -> list[str] | None:
    try:
        return await server.ask()
    except CallTimeout:
        return None


async def test_clients_find_the_name_servers_that_it_names(
    http: HttpServer, cluster: Cluster
) -> None:
    http.answers["/rocketmq/nsaddr"] = cluster.name_server.encode()
    async with Producer(http.url, "P") as producer:
        assert (await producer.send("found", b"1")).queue.topic == "found"


def test_so_do_blocking_clients(http: HttpServer, cluster: Cluster) -> None:
    http.answers["/rocketmq/nsaddr"] = cluster.name_server.encode()
    with sync.connect(http.url) as mq:
        assert mq.send("found", b"1").queue.topic == "found"


async def test_without_an_answer_a_client_does_not_start(http: HttpServer) -> None:
    producer = Producer(http.url, "P")
    with pytest.raises(ConnectionClosed, match="HTTP Error 404"):
        await producer.start()
    assert not producer.is_open


async def test_name_servers_that_change_are_found_and_a_failure_changes_nothing(
    http: HttpServer, cluster: Cluster, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, "roquet")

    async def until_logged(text: str) -> None:
        async with asyncio.timeout(30):
            while text not in caplog.text:
                await asyncio.sleep(0.01)

    http.answers["/rocketmq/nsaddr"] = cluster.name_server.encode()
    async with Producer(http.url, "P", poll_name_server_ms=20) as producer:
        http.answers["/rocketmq/nsaddr"] = 500
        await until_logged("address server does not answer")
        await producer.send("found-again", b"1")
        http.answers["/rocketmq/nsaddr"] = f"{cluster.name_server};127.0.0.1:1".encode()
        await until_logged("address server answers again")
        await until_logged(f"'{cluster.name_server}', '127.0.0.1:1'")
