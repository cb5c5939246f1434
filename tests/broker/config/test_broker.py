"""broker.conf: Apache's names, defaults and files.

See docs/broker/configuration.md#ports and docs/broker/configuration.md#how-the-file-is-read.
"""

from __future__ import annotations

import socket
from pathlib import Path

import pytest

from roquet.broker.config.broker import BrokerConfig, read_config, save_role
from roquet.broker.config.limits import Limits
from roquet.broker.config.store import BrokerRole, FlushDisk
from roquet.common.properties import parse
from roquet.common.settings import setting_names, show_settings
from roquet.errors import ConfigError

DEFAULTS = """
brokerClusterName=DefaultCluster brokerId=0 brokerPermission=6 defaultTopicQueueNums=8 autoCreateTopicEnable=true
clusterTopicEnable=true brokerTopicEnable=true autoCreateSubscriptionGroup=true traceTopicEnable=false
msgTraceTopicName=RMQ_SYS_TRACE_TOPIC traceOn=true regionId=DefaultRegion adminBrokerThreadPoolNums=16
clientManageThreadPoolNums=32 consumerManageThreadPoolNums=32 sendThreadPoolQueueCapacity=10000
putThreadPoolQueueCapacity=10000 replyThreadPoolQueueCapacity=10000 pullThreadPoolQueueCapacity=100000
queryThreadPoolQueueCapacity=20000 clientManagerThreadPoolQueueCapacity=1000000
consumerManagerThreadPoolQueueCapacity=1000000 heartbeatThreadPoolQueueCapacity=50000
endTransactionPoolQueueCapacity=100000 flushConsumerOffsetInterval=5000 flushConsumerOffsetHistoryInterval=60000
rejectTransactionMessage=false fetchNamesrvAddrByAddressServer=false filterServerNums=0 longPollingEnable=true
shortPollingTimeMills=1000 notifyConsumerIdsChangedEnable=true highSpeedMode=false commercialEnable=true
commercialTimerCount=1 commercialTransCount=1 commercialBigCount=1 commercialBaseCount=1 maxDelayTime=40
transferMsgByHeap=true registerBrokerTimeoutMills=6000 slaveReadEnable=false
disableConsumeIfConsumerReadSlowly=false consumerFallbehindThreshold=17179869184 brokerFastFailureEnable=true
waitTimeMillsInSendQueue=200 waitTimeMillsInPullQueue=5000 waitTimeMillsInHeartbeatQueue=31000
waitTimeMillsInTransactionQueue=3000 startAcceptSendRequestTimeStamp=0 enablePropertyFilter=false
enableCalcFilterBitMap=false expectConsumerNumUseFilter=32 maxErrorRateOfBloomFilter=20
filterDataCleanTimeSpan=86400000 filterSupportRetry=false compressedRegister=false forceRegister=true
registerNameServerPeriod=30000 transactionTimeOut=6000 transactionCheckMax=15 transactionCheckInterval=60000
aclEnable=false storeReplyMessageEnable=true enableDetailStat=true autoDeleteUnusedStats=false isolateLogEnable=false
messageStorePlugIn= configBlackList=configBlackList;brokerConfigPath
storePathCommitLog= readOnlyCommitLogStorePaths= mappedFileSizeCommitLog=1073741824
mappedFileSizeConsumeQueue=6000000 enableConsumeQueueExt=false mappedFileSizeConsumeQueueExt=50331648
bitMapLengthConsumeQueueExt=64 flushIntervalCommitLog=500 commitIntervalCommitLog=200
useReentrantLockWhenPutMessage=true flushCommitLogTimed=true flushIntervalConsumeQueue=1000
cleanResourceInterval=10000 deleteCommitLogFilesInterval=100 deleteConsumeQueueFilesInterval=100
destroyMapedFileIntervalForcibly=120000 redeleteHangedFileInterval=120000 deleteWhen=04 diskMaxUsedSpaceRatio=75
fileReservedTime=72 putMsgIndexHightWater=600000 maxMessageSize=4194304 checkCRCOnRecover=true
flushCommitLogLeastPages=4 commitCommitLogLeastPages=4 flushLeastPagesWhenWarmMapedFile=4096
flushConsumeQueueLeastPages=2 flushCommitLogThoroughInterval=10000 commitCommitLogThoroughInterval=200
flushConsumeQueueThoroughInterval=60000 maxTransferBytesOnMessageInMemory=262144
maxTransferCountOnMessageInMemory=32 maxTransferBytesOnMessageInDisk=65536 maxTransferCountOnMessageInDisk=8
accessMessageInMemoryMaxRatio=40 messageIndexEnable=true maxHashSlotNum=5000000 maxIndexNum=20000000
maxMsgsNumBatch=64 messageIndexSafe=false haListenPort=10912 haSendHeartbeatInterval=5000
haHousekeepingInterval=20000 haTransferBatchSize=32768 haMasterAddress= haSlaveFallbehindMax=268435456
brokerRole=ASYNC_MASTER flushDiskType=ASYNC_FLUSH syncFlushTimeout=5000 slaveTimeout=3000
flushDelayOffsetInterval=10000 cleanFileForciblyEnable=true warmMapedFileEnable=false offsetCheckInSlave=false
debugLockEnable=false duplicationEnable=false diskFallRecorded=true osPageCacheBusyTimeOutMills=1000
defaultQueryMaxNum=32 transientStorePoolEnable=false transientStorePoolSize=5 fastFailIfNoBufferInStorePool=false
enableDLegerCommitLog=false storePathDLedgerCommitLog= dLegerGroup= dLegerPeers= dLegerSelfId= preferredLeaderId=
isEnableBatchPush=false enableScheduleMessageStats=true enableLmq=false enableMultiDispatch=false
maxLmqConsumeQueueNum=20000 enableScheduleAsyncDeliver=false scheduleAsyncDeliverMaxPendingLimit=2000
scheduleAsyncDeliverMaxResendNum2Blocked=3
listenPort=10911 serverWorkerThreads=8 serverCallbackExecutorThreads=0 serverSelectorThreads=3
serverOnewaySemaphoreValue=256 serverAsyncSemaphoreValue=64 serverChannelMaxIdleTimeSeconds=120
serverSocketSndBufSize=0 serverSocketRcvBufSize=0 clientSocketSndBufSize=0 clientSocketRcvBufSize=0
writeBufferHighWaterMark=0 writeBufferLowWaterMark=0 serverSocketBacklog=1024
serverPooledByteBufAllocatorEnable=true useEpollNativeSelector=false clientWorkerThreads=4
clientOnewaySemaphoreValue=65535 clientAsyncSemaphoreValue=65535 connectTimeoutMillis=3000
channelNotActiveInterval=60000 clientChannelMaxIdleTimeSeconds=120 clientCloseSocketIfTimeout=true
clientPooledByteBufAllocatorEnable=false useTLS=false
"""
OF_5X = {"bindAddress", "diskSpaceCleanForciblyRatio", "diskSpaceWarningLevelRatio"}
OURS = {
    *(
        "mergeSlaveOffsets",
        "slaveSyncInterval",
        "waitingSendsMax",
        "connectionsMax",
        "connectionsPerAddressMax",
    ),
    *(
        "answerBytesMax",
        "answerBytesPerConnectionMax",
        "requestBytesMax",
        "requestBytesPerConnectionMax",
    ),
    *(
        "partialRequestTimeout",
        "haAllowedAddresses",
        "haConnectionsMax",
        "syncFailureAction",
        "loopDelayWarningMs",
    ),
    *setting_names(Limits),
}
COMPUTED = """
namesrvAddr brokerName brokerIP1 brokerIP2 rocketmqHome storePathRootDir messageDelayLevel sendMessageThreadPoolNums
putMessageFutureThreadPoolNums pullMessageThreadPoolNums processReplyMessageThreadPoolNums queryMessageThreadPoolNums
heartbeatThreadPoolNums endTransactionThreadPoolNums clientCallbackExecutorThreads rmqAddressServerDomain
rmqAddressServerSubGroup brokerConfigPath
"""
"""Apache's default depends on the machine, or holds blanks."""

IDENTITY = (
    "brokerClusterName = DefaultCluster\nbrokerName=broker-a\ndeleteWhen=04\nfileReservedTime=48\n"
)
SHIPPED = {
    "broker.conf": IDENTITY
    + "brokerId = 0\nbrokerRole = ASYNC_MASTER\nflushDiskType = ASYNC_FLUSH\n",
    "2m-noslave/broker-a.properties": IDENTITY
    + "brokerId=0\nbrokerRole=ASYNC_MASTER\nflushDiskType=ASYNC_FLUSH\n",
    "2m-2s-async/broker-a.properties": IDENTITY
    + "brokerId=0\nbrokerRole=ASYNC_MASTER\nflushDiskType=ASYNC_FLUSH\n",
    "2m-2s-async/broker-a-s.properties": IDENTITY
    + "brokerId=1\nbrokerRole=SLAVE\nflushDiskType=ASYNC_FLUSH\n",
    "2m-2s-sync/broker-a.properties": IDENTITY
    + "brokerId=0\nbrokerRole=SYNC_MASTER\nflushDiskType=ASYNC_FLUSH\n",
    "2m-2s-sync/broker-a-s.properties": IDENTITY
    + "brokerId=1\nbrokerRole=SLAVE\nflushDiskType=ASYNC_FLUSH\n",
}
DLEDGER = """
brokerClusterName = RaftCluster
brokerName=RaftNode00
listenPort=30911
namesrvAddr=127.0.0.1:9876
storePathRootDir=/tmp/node00
storePathCommitLog=/tmp/node00/commitlog
enableDLegerCommitLog=true
dLegerGroup=RaftNode00
dLegerPeers=n0-127.0.0.1:40911;n1-127.0.0.1:40912;n2-127.0.0.1:40913
dLegerSelfId=n0
sendMessageThreadPoolNums=16
"""


def read(**values: object) -> BrokerConfig:
    config, warnings = read_config(
        [(name, str(value)) for name, value in values.items()], environment={}
    )
    assert warnings == []
    return config


def test_every_property_of_apaches_broker_is_known() -> None:
    named = {pair.partition("=")[0] for pair in DEFAULTS.split()} | set(COMPUTED.split())
    assert setting_names(BrokerConfig) == named | OF_5X | OURS


def test_defaults_are_apaches() -> None:
    shown = dict(show_settings(BrokerConfig()))
    expected = dict(pair.split("=", 1) for pair in DEFAULTS.split())
    assert {name: shown[name] for name in expected} == expected
    assert len(BrokerConfig().delay_levels.ms) == 18


def test_what_is_shown_can_be_read_again() -> None:
    config = read(
        brokerName="b", brokerRole="SLAVE", brokerId=2, flushDiskType="SYNC_FLUSH", listenPort=20911
    )
    again, warnings = read_config(show_settings(config), environment={})
    assert (again, warnings) == (config, [])


@pytest.mark.parametrize("name", SHIPPED)
def test_the_files_that_apache_ships_are_read(name: str) -> None:
    config, warnings = read_config(parse(SHIPPED[name]).pairs, name, environment={})
    assert warnings == []
    assert config.broker_name == "broker-a"
    assert config.store.file_reserved_time == 48
    assert config.is_slave == name.endswith("-s.properties")
    assert config.broker_id == int(config.is_slave)
    assert (config.replication.broker_role is BrokerRole.SYNC_MASTER) == (
        name == "2m-2s-sync/broker-a.properties"
    )


def test_a_raft_log_is_refused_with_what_to_do_instead() -> None:
    with pytest.raises(
        ConfigError, match=r"enableDLegerCommitLog: there is no DLedger here; use brokerRole"
    ):
        read_config(parse(DLEDGER).pairs, environment={})


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("aclEnable", "true"),
        ("useTLS", "true"),
        ("enableMultiDispatch", "true"),
        ("enableLmq", "true"),
        ("messageStorePlugIn", "org.example.Store"),
        ("fetchNamesrvAddrByAddressServer", "true"),
        ("brokerRole", "MASTER"),
        ("brokerRole", "SLAVE"),
        ("listenPort", "2"),
        ("listenPort", "65535"),
        ("namesrvAddr", "localhost"),
        ("namesrvAddr", "a:9876;b"),
        ("messageDelayLevel", "1s 5"),
        ("mappedFileSizeCommitLog", "1024*1024"),
    ],
)
def test_what_would_do_harm_if_ignored_is_refused_by_name(name: str, value: str) -> None:
    with pytest.raises(ConfigError, match=name):
        read_config([(name, value)], environment={})


def test_the_old_spelling_of_the_file_size_is_taken_with_a_warning() -> None:
    config, warnings = read_config([("mapedFileSizeCommitLog", "1048576")], environment={})
    assert config.store.mapped_file_size_commit_log == 1048576
    assert len(warnings) == 1


def test_a_slave_needs_an_id_and_a_masters_is_always_0() -> None:
    with pytest.raises(ConfigError, match="brokerId=0 with brokerRole=SLAVE"):
        read(brokerRole="SLAVE", brokerId=0)
    assert read(brokerRole="SLAVE", brokerId=3).broker_id == 3
    assert read(brokerRole="SYNC_MASTER", brokerId=3).broker_id == 0
    assert read(brokerId=-1).broker_id == 0


def test_the_ports_follow_from_one() -> None:
    config = read(listenPort=10921, haListenPort=5, brokerIP1="10.0.0.1", brokerIP2="::1")
    assert (config.fast_port, config.ha_port) == (10919, 10922)
    assert (config.address, config.ha_address) == ("10.0.0.1:10921", "[::1]:10922")


def test_three_free_ports_are_found_where_any_will_do() -> None:
    config = read(listenPort=0, bindAddress="127.0.0.1").with_ports()
    assert config.listen_port > 2
    for port in (config.fast_port, config.listen_port, config.ha_port):
        with socket.socket() as listener:
            listener.bind(("127.0.0.1", port))
    assert config.with_ports() is config


def test_what_is_left_open_comes_from_the_machine() -> None:
    config, _ = read_config([], environment={"NAMESRV_ADDR": "a:9876; b:9876"})
    assert config.broker_name == socket.gethostname()
    assert config.broker_ip1 == config.broker_ip2 != ""
    assert config.name_servers == ("a:9876", "b:9876")
    given, _ = read_config([("namesrvAddr", "c:9876")], environment={"NAMESRV_ADDR": "a:9876"})
    assert given.name_servers == ("c:9876",)
    with pytest.raises(ConfigError, match="namesrvAddr=nowhere"):
        read_config([], environment={"NAMESRV_ADDR": "nowhere"})


def test_the_log_is_below_the_root_unless_said_otherwise() -> None:
    config = read(storePathRootDir="/data")
    assert (config.store_folder, config.commit_log_folders) == (
        Path("/data"),
        (Path("/data/commitlog"),),
    )
    assert config.state_folder == Path("/data/config")
    assert read(storePathCommitLog="/log").commit_log_folders == (Path("/log"),)
    assert read().store_folder == Path.home() / "store"


def test_derived_values() -> None:
    config = read(
        brokerPermission=4,
        registerNameServerPeriod=1,
        mappedFileSizeConsumeQueue=1001,
        maxMessageSize=3,
        messageDelayLevel="1s 2m 3h 4d",
        haMasterAddress="a:1",
        flushDiskType="SYNC_FLUSH",
    )
    assert (config.is_readable, config.is_writable) == (True, False)
    assert (
        config.register_period_ms,
        read(registerNameServerPeriod=99_999).register_period_ms,
    ) == (10_000, 60_000)
    assert (config.store.consume_queue_file_size, config.store.message_size_max) == (1020, 10)
    assert config.delay_levels.ms == (1000, 120_000, 10_800_000, 345_600_000)
    assert (config.ha_master_address, read(haMasterAddress="a:10912").ha_master_address) == (
        None,
        "a:10912",
    )
    assert config.store.flush_disk_type is FlushDisk.SYNC_FLUSH


@pytest.mark.parametrize(("noted", "expected"), [("false", 1), ("true", 0)])
def test_filter_bits_without_notes_to_hold_them_are_warned_of(noted: str, expected: int) -> None:
    pairs = [("enableCalcFilterBitMap", "true"), ("enableConsumeQueueExt", noted)]
    _, warnings = read_config(pairs, environment={})
    assert len([warning for warning in warnings if "enableCalcFilterBitMap" in warning]) == expected


def test_a_new_role_is_written_into_the_file_and_the_other_lines_stay(tmp_path: Path) -> None:
    path = tmp_path / "broker.conf"
    old = "# ours\nbrokerRole=SLAVE\nbrokerId = 1\nlistenPort=10911\n"
    path.write_text(old)
    pairs = {"brokerRole": "SYNC_MASTER", "brokerId": "0", "brokerConfigPath": str(path)}

    save_role(read_config(pairs.items())[0])

    new = parse(path.read_text())
    assert dict(new.pairs) == {"brokerRole": "SYNC_MASTER", "brokerId": "0", "listenPort": "10911"}
    assert path.read_text().startswith("# ours\n")
    assert path.with_name("broker.conf.bak").read_text() == old


def test_a_broker_without_a_file_writes_none(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)

    save_role(BrokerConfig())

    assert list(tmp_path.iterdir()) == []
