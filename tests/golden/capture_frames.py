"""What Apache's clients, mqadmin, broker and name server say to each other: a file per kind of
request and answer.
"""

from __future__ import annotations

from tests.golden.capture_admin import run_mqadmin
from tests.golden.collection import Collection, Peer, shown
from tests.golden.frames import exchanges
from tests.golden.java_client import JavaClient
from tests.golden.stage import BINARY, BROKER, IPV4, NAME_SERVER, Stage, say
from tests.interop.apache import Version, go_client, wait_until

BROKER_PROPERTIES: dict[str, str | int] = {
    "forceRegister": "false",  # It then asks for the stored data version before it registers.
    "transactionTimeOut": 500,
    "transactionCheckInterval": 2000,
    "enablePropertyFilter": "true",
    "mappedFileSizeCommitLog": 1 << 24,
}
KEYS = ("--access-key", "golden-access", "--secret-key", "golden-secret")
ACL = """accounts:
  - accessKey: golden-access
    secretKey: golden-secret
    defaultTopicPerm: PUB|SUB
    defaultGroupPerm: PUB|SUB
"""
QUERY_DATA_VERSION = 322
GO = "client-go-2.1.2"


def capture(collection: Collection) -> None:
    collection.clear("frames")
    with Stage(BROKER_PROPERTIES) as stage:
        for version in Version:
            for options in ([IPV4], [IPV4, BINARY]):
                JavaClient(collection, stage, version, options).talk()
        _go(collection, stage)
        for version in Version:
            run_mqadmin(collection, stage, version)
        _add_registrations(collection, stage, BROKER_PROPERTIES)
    with Stage(BROKER_PROPERTIES, [BINARY]) as stage:
        _add_registrations(collection, stage, BROKER_PROPERTIES)
    compressed = BROKER_PROPERTIES | {"compressedRegister": "true"}
    with Stage(compressed) as stage:
        _add_registrations(collection, stage, compressed)
    with Stage({"aclEnable": "true"}, files={"conf/plain_acl.yml": ACL}) as stage:
        _signed(collection, stage)


def _go(collection: Collection, stage: Stage) -> None:
    _run_go(collection, stage, GO, "produce", "GoldenGo", 2, "--tag", "TagA,TagB", "--keys", "key")
    _run_go(collection, stage, GO, "produce", "GoldenGo", 3, "--batch", 3)
    _run_go(collection, stage, GO, "produce", "GoldenGo", 1, "--oneway")
    _run_go(collection, stage, GO, "consume", "GoldenGo", "GroupGo", 6, 20)
    _run_go(collection, stage, GO, "consume", "GoldenGo", "GroupGoRetry", 100, 3, "--fail", 1)
    _run_go(collection, stage, GO, "consume", "GoldenGo", "GroupGoOrderly", 6, 20, "--orderly")
    _run_go(collection, stage, GO, "transact", "GoldenGoTx", 1, "--transaction", "commit")
    _run_go(collection, stage, GO, "transact", "GoldenGoTx", 1, "--transaction", "rollback")


def _signed(collection: Collection, stage: Stage) -> None:
    for version in Version:
        client = JavaClient(collection, stage, version, [IPV4], kind="signed-client")
        client.run("produce", "GoldenSigned", 1, *KEYS)
        client.run("produce", "GoldenSigned", 2, "--batch", 2, *KEYS)
        client.run("consume", "GoldenSigned", f"GroupSigned{version.value[0]}", 3, 20, *KEYS)
        client.run("query", "GoldenSigned", "none", *KEYS)
    refused = JavaClient(collection, stage, Version.V4, [IPV4], kind="unsigned-client")
    refused.run("produce", "GoldenSigned", 1)
    _run_go(collection, stage, f"signed-{GO}", "produce", "GoldenSigned", 1, *KEYS)


def _run_go(
    collection: Collection, stage: Stage, directory: str, command: str, *words: object
) -> None:
    line = shown("driver", command, stage.namesrv, *words)
    say(f"go {line}")
    with stage.watch() as seen:
        go_client(command, stage.namesrv, *map(str, words))
    seen.add_to(collection, Peer(f"frames/{directory}", "Apache Go client 2.1.2"), line)


def _add_registrations(
    collection: Collection, stage: Stage, properties: dict[str, str | int]
) -> None:
    """What passed between broker and name server, to the broker's end."""

    def asked() -> bool:
        connections = list(stage.broker_road.connections)
        return any(
            one.request.code == QUERY_DATA_VERSION
            for each in connections
            for one in exchanges(each)
        )

    wait_until(asked, "the broker's question for the stored data version")
    stage.broker.stop()
    configured = shown(*(f"{key}={value}" for key, value in properties.items()))
    line = f"java {shown(*stage.java_options)} BrokerStartup with {configured}, then SIGTERM"
    collection.add_exchanges(BROKER, NAME_SERVER, line, stage.broker_road.connections)
