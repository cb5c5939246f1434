"""What a broker says of itself.

See docs/broker/statistics.md#runtime-information, docs/pitfalls.md#trap-47,
docs/protocol/administration.md#runtime-information and
docs/protocol/administration.md#what-a-slave-copies.
"""

from __future__ import annotations

from roquet.broker.config.broker import read_config
from roquet.common.properties import parse
from roquet.protocol.bodies.tables import DelayOffsetTable
from roquet.protocol.remoting.codes import RequestCode
from tests.broker.harness import World

NAMES = """
bootTimestamp runtime putMessageEntireTimeMax putMessageTimesTotal putMessageFailedTimes putMessageSizeTotal
putMessageAverageSize getMessageEntireTimeMax dispatchMaxBuffer putMessageDistributeTime putTps getFoundTps getMissTps
getTotalTps getTransferedTps getTransferredTps putLatency99 putLatency999 commitLogDiskRatio consumeQueueDiskRatio
scheduleMessageOffset_3 commitLogMinOffset commitLogMaxOffset brokerVersionDesc brokerVersion
msgPutTotalYesterdayMorning msgPutTotalTodayMorning msgPutTotalTodayNow msgGetTotalYesterdayMorning
msgGetTotalTodayMorning msgGetTotalTodayNow sendThreadPoolQueueSize sendThreadPoolQueueCapacity
pullThreadPoolQueueSize pullThreadPoolQueueCapacity queryThreadPoolQueueSize queryThreadPoolQueueCapacity
EndTransactionQueueSize EndTransactionThreadPoolQueueCapacity sendThreadPoolQueueHeadWaitTimeMills
pullThreadPoolQueueHeadWaitTimeMills queryThreadPoolQueueHeadWaitTimeMills dispatchBehindBytes pageCacheLockTimeMills
earliestMessageTimeStamp startAcceptSendRequestTimeStamp remainTransientStoreBufferNumbs remainHowManyDataToCommit
remainHowManyDataToFlush commitLogDirCapacity
"""


def test_the_configuration_can_be_read_back(world: World) -> None:
    answer = world.client().call(RequestCode.GET_BROKER_CONFIG)
    again, _ = read_config(parse(answer.body.decode()).pairs, environment={})
    assert again == world.config
    assert answer.fields["version"].startswith('{"counter":0,"timestamp":17')


def test_every_figure_that_tools_look_for_is_there(world: World) -> None:
    world.put("T")
    world.delays.delivered(3, 7)
    world.sim.run_for(3723)
    table = world.client().ask(RequestCode.GET_BROKER_RUNTIME_INFO)["table"]
    assert set(NAMES.split()) <= set(table)
    assert all(isinstance(value, str) for value in table.values())
    assert f"commitLogDiskRatio_{world.config.commit_log_folders[0]}" in table
    assert table["scheduleMessageOffset_3"] == "7,0"
    assert table["runtime"].startswith("[ 0 days, 1 hours, 2 minutes, ")
    assert len(table["putTps"].split(" ")) == len(table["getTransferedTps"].split(" ")) == 3
    assert table["earliestMessageTimeStamp"] == str(world.store.store_time("T", 0, 0))
    assert table["commitLogMaxOffset"] == str(world.store.log.end)
    assert table["remainHowManyDataToFlush"].endswith(" B")
    assert table["brokerVersionDesc"] == "V4_9_8"


def test_offsets_are_given_with_bare_integer_keys(world: World) -> None:
    client = world.client()
    world.offsets.commit("g", "T", 0, 5)
    world.offsets.commit("g", "T", 1, 6)
    world.delays.restore(DelayOffsetTable({1: 5}))
    assert (
        client.call(RequestCode.GET_ALL_CONSUMER_OFFSET).body
        == b'{"offsetTable":{"T@g":{0:5,1:6}}}'
    )
    assert client.call(RequestCode.GET_ALL_DELAY_OFFSET).body == b'{"offsetTable":{1:5}}'
