"""The faults, from the promise they break; each names the tests that are meant to notice."""

from __future__ import annotations

from typing import Final

from tests.mutants.mutant import Change, Mutant

_HEAVY: Final = (
    "tests/simulation/test_attacks.py::test_what_would_take_a_broker_long_is_refused",
    "--histories=300",
)
_HOSTILE: Final = ("tests/simulation/test_attacks.py", "--histories=300")
_STRANGE_HALVES: Final = (
    "tests/simulation/test_transactions.py",
    "-k=strange_half_messages",
    "--histories=600",
)
_PASSING_TOPICS: Final = ("tests/simulation/test_passing_topics.py", "--histories=600")
_STRANGERS: Final = ("tests/simulation/test_strangers.py",)
_DRIVES: Final = (
    "tests/simulation/test_drives.py::test_a_drive_that_fails_for_a_while",
    "--seeds=40",
)
_SYNCS: Final = (
    "tests/simulation/test_drives.py::test_a_sync_that_fails_while_another_one_goes_well",
    "--seeds=40",
)
_FULL_DRIVES: Final = (
    "tests/simulation/test_drives.py::test_a_broker_starts_on_a_drive_that_is_full[5285]",
    "--histories=12000",
)

_ACKNOWLEDGING: Final = (
    Mutant(
        "SEND_OK does not wait for the disk",
        "broker/delivery/ack_gate.py",
        """        if self._flushes and self._log.flushed_to < held.end:
            return False
        return not held.needs_slave""",
        """        return not held.needs_slave""",
        ("tests/broker/delivery/test_ack_gate.py", "tests/simulation/test_master_crash.py"),
    ),
    Mutant(
        "SEND_OK does not wait for a slave",
        "broker/delivery/ack_gate.py",
        "return not held.needs_slave or self._has_copy(held)",
        "return True",
        ("tests/broker/delivery/test_ack_gate.py", "tests/simulation/test_master_crash.py"),
    ),
    Mutant(
        "an empty slave acknowledges what is older than its copy",
        "replication/server.py",
        """            if begin < end:
                return True
""",
        """            return True
""",
        ("tests/replication/test_server.py", "tests/simulation/test_slave_crash.py"),
    ),
    Mutant(
        "a sync of the log syncs nothing",
        "storage/log/commit_log.py",
        """                for file, first, last in pieces:
                    file.sync(first, last)
""",
        """                for _file, _first, _last in pieces:
                    pass
""",
        (
            "tests/storage/test_recovery.py",
            "tests/properties",
            "tests/simulation/test_master_crash.py",
        ),
    ),
    Mutant(
        "a sync counts what came while it ran",
        "broker/background.py",
        "    store.log.synced(end)\n    return True",
        "    store.log.synced(store.log.end)\n    return True",
        (
            "tests/broker/test_background.py",
            "tests/simulation/test_master_crash.py",
            "tests/simulation/test_chaos.py",
        ),
    ),
    Mutant(
        "what a master sent counts as what its slave has",
        "replication/master.py",
        "return replace(slave, acked=offset, advanced_ms=now_ms), [Acked(offset)]",
        "return replace(slave, acked=offset, advanced_ms=now_ms), [Acked(slave.next_offset)]",
        ("tests/replication/test_master.py", "tests/simulation/test_master_crash.py"),
    ),
    Mutant(
        "a slave's report beyond the log is believed",
        "replication/master.py",
        "    if offset > slave.log_end:",
        "    if offset > slave.log_end + (1 << 62):",
        ("tests/replication/test_master.py",),
    ),
    Mutant(
        "consumers and slaves see what is not on the drive",
        "storage/store.py",
        "only_durable = self.config.reads_only_durable or self._sync_health.failure is not None",
        "only_durable = False",
        (
            "tests/storage/test_store.py",
            "tests/broker/delivery/test_ack_gate.py",
            "tests/simulation/test_master_crash.py",
        ),
    ),
    Mutant(
        "an unanswered promise becomes SEND_OK when its time is over",
        "broker/delivery/ack_gate.py",
        """            self._last_missed = code
        return replace(response, code=code, remark=remark).encode()""",
        """            self._last_missed = code
        return replace(response, remark=remark).encode()""",
        ("tests/broker/delivery/test_ack_gate.py",),
    ),
)

_RECOVERING: Final = (
    Mutant(
        "recovery leaves what stands behind its cut",
        "storage/log/commit_log.py",
        "        self._segments.erase(end)\n",
        "",
        (
            "tests/storage/log/test_saved_tail.py",
            "tests/storage/test_recovery.py",
            "tests/properties",
        ),
    ),
    Mutant(
        "recovery erases from the front",
        "storage/files/erasure.py",
        "reversed(pages)",
        "pages",
        ("tests/storage/files/test_erasure.py",),
    ),
    Mutant(
        "recovery takes zeros that were not synced for durable ones",
        "storage/queues/consume_queue.py",
        "        self._durable = self._durable.truncated((self.max_offset - 1) * ENTRY_SIZE)\n",
        "",
        ("tests/storage/files/test_erasure.py",),
    ),
    Mutant(
        "a queue that lacks its first file passes for one that was cleaned",
        "storage/lost_queues.py",
        "first[1] > commit_log.start",
        "first[1] < commit_log.start",
        ("tests/storage/test_lost_queues.py",),
    ),
    Mutant(
        "a queue that is deleted while it is rebuilt is filled all the same",
        "storage/queues/consume_queue.py",
        "            self.replacement.delete_oldest_first()\n            self.adopt()\n",
        "            pass\n",
        ("tests/storage/test_lost_queues.py",),
    ),
    Mutant(
        "a queue that is deleted goes from its end",
        "broker/maintenance/queue_deletion.py",
        "                queue.delete_oldest_first()\n                await asyncio.sleep(0)\n",
        "                queue.delete_newest_first()\n                await asyncio.sleep(0)\n",
        (
            "tests/broker/maintenance/test_queue_deletion.py",
            "tests/simulation/test_failing_drives.py",
        ),
    ),
    Mutant(
        "recovery checks no checksums",
        "storage/store.py",
        "verify=self.config.verify_on_recovery",
        "verify=False",
        (
            "tests/storage/log/test_holes.py",
            "tests/storage/test_store.py",
            "tests/storage/test_recovery.py",
        ),
    ),
    Mutant(
        "recovery keeps stale queue entries",
        "storage/recovery.py",
        "        if crashed and not has_mark:\n            _drop_stale(log, queue)\n",
        "",
        ("tests/storage/test_stale_entries.py",),
    ),
    Mutant(
        "the offset of a damaged record is given to another message",
        "storage/recovery.py",
        "        if crashed and not has_mark:\n",
        "        if crashed:\n",
        ("tests/storage/test_stale_entries.py",),
    ),
    Mutant(
        "a topic that was deleted and made again goes on where it was in other copies of the log",
        "storage/dispatch/dispatch.py",
        "return offset == 0 or (queue.max_offset < offset",
        "return (queue.max_offset < offset",
        ("tests/storage/dispatch/test_dispatch.py", "tests/simulation/test_failing_drives.py"),
    ),
    Mutant(
        "the checkpoint is saved before the syncs",
        "storage/checkpoint_work.py",
        "return sync_all, save",
        "return save, sync_all",
        ("tests/storage/test_recovery.py", "tests/properties"),
    ),
    Mutant(
        "the checkpoint does not sync queues",
        "storage/checkpoint_work.py",
        "return [log.sync_work(log.end), *syncs, *of_index], mark",
        "return [log.sync_work(log.end), *of_index], mark",
        ("tests/storage/test_recovery.py", "tests/properties"),
    ),
    Mutant(
        "a queue counts entries as synced that are not",
        "storage/files/segments.py",
        """            for file, first, last in pieces:
                file.sync(first, last)
            durable.end = max(durable.end, end)""",
        """            durable.end = max(durable.end, end)""",
        ("tests/storage/test_recovery.py", "tests/properties"),
    ),
    Mutant(
        "groups stay beyond the end of their queue",
        "broker/late_dispatch.py",
        "            _clamp_offsets(tables.offsets, store)\n",
        "",
        ("tests/broker/test_clamped_offsets.py",),
    ),
    Mutant(
        "transactions whose queue entries come late count as ended",
        "broker/late_dispatch.py",
        """        if self._lacked_entries and not self._store.dispatch.is_held_up:
            self.complete_tables()
""",
        "",
        ("tests/broker/test_late_dispatch.py",),
    ),
    Mutant(
        "delayed messages whose queue entries come late come early, or a second time",
        "broker/delay/delivery.py",
        """        while self._store.dispatch.is_held_up:
            await asyncio.sleep(LOOK_MS / 1000)
""",
        "",
        ("tests/broker/test_late_dispatch.py",),
    ),
    Mutant(
        "progress of delayed messages is noted before they are on the drive",
        "broker/background.py",
        "            and await flush(store, runtime, limited_log)\n",
        "",
        ("tests/broker/delay/test_delivery.py", "tests/simulation/test_delays.py"),
    ),
    Mutant(
        "progress of half messages is noted before ends are on the drive",
        "broker/transactions/half_messages.py",
        "if self._reached is not None and self._reached[0] <= log.flushed_to:",
        "if self._reached is not None:",
        (
            "tests/broker/transactions/test_half_messages.py",
            "tests/simulation/test_transactions.py",
        ),
    ),
    Mutant(
        "a slave's delay progress counts before its log has the messages",
        "broker/offsets/consumer_offsets.py",
        "        if flushed_to < end:\n            return False\n",
        "",
        ("tests/broker/offsets/test_consumer_offsets.py", "tests/simulation/test_delays.py"),
    ),
)

_REPLICATING: Final = (
    Mutant(
        "a slave does not compare its last bytes",
        "replication/slave.py",
        "if slave.overlap[:known] != data[:known]:",
        "if False:",
        ("tests/replication/test_slave.py",),
    ),
    Mutant(
        "a slave takes bytes beyond a gap",
        "replication/slave.py",
        "    if physical == slave.next_offset:",
        "    if physical >= slave.next_offset:",
        ("tests/replication/test_slave.py",),
    ),
    Mutant(
        "a slave never gives up on a silent master",
        "replication/slave.py",
        "    if silent_ms > slave.rules.silence_ms_max:",
        "    if silent_ms > slave.rules.silence_ms_max + (1 << 62):",
        ("tests/replication/test_slave.py",),
    ),
    Mutant(
        "a slave is promoted while its master answers",
        "broker/ha/promotion.py",
        "            if liveness is BrokerLiveness.ANSWERS:",
        "            if False:",
        ("tests/broker/ha/test_promotion.py",),
    ),
    Mutant(
        "a slave is promoted that lacks what its master had",
        "broker/ha/promotion.py",
        "        if own.end < had.end:",
        "        if False:",
        ("tests/broker/ha/test_promotion.py",),
    ),
    Mutant(
        "a second master of a name starts",
        "broker/ha/replica_queries.py",
        "        or await liveness_of(channels, other) is not BrokerLiveness.ANSWERS\n",
        "        or True\n",
        ("tests/broker/ha/test_replica_queries.py", "tests/broker/ha/test_promotion.py"),
    ),
    Mutant(
        "a slave forgets what consumers committed to it",
        "broker/offsets/consumer_offsets.py",
        "            offsets |= self._ahead(topic, group, of_master)\n",
        "            pass\n",
        ("tests/broker/offsets/test_consumer_offsets.py",),
    ),
)

_DELIVERING: Final = (
    Mutant(
        "a group commits one message too far",
        "broker/offsets/consumer_offsets.py",
        "            queues[queue_id] = offset\n            self.changes += 1",
        "            queues[queue_id] = offset + 1\n            self.changes += 1",
        ("tests/broker/offsets/test_consumer_offsets.py",),
    ),
    Mutant(
        "progress that is being saved changes",
        "broker/offsets/consumer_offsets.py",
        "if queues is None or queues.age != self._age:\n                queues = self._writable",
        "if queues is None:\n                queues = self._writable",
        ("tests/broker/offsets/test_consumer_offsets.py",),
    ),
    Mutant(
        "held pulls are not woken",
        "broker/delivery/append_notifier.py",
        "            self._long_polls.wake(grown)\n",
        "            pass\n",
        ("tests/broker/handlers/test_pull.py", "tests/simulation/test_consumers.py"),
    ),
    Mutant(
        "a consumer's offset passes what is not done",
        "client/_consume/process_queue.py",
        "return next(iter(self._sizes), self._next_offset)",
        "return self._next_offset",
        ("tests/client/_consume/test_process_queue.py",),
    ),
    Mutant(
        "a queue is leased to two members",
        "broker/delivery/queue_locks.py",
        "return self.client_id == client_id or now_ms - self.renewed_ms > LEASE_MS",
        "return True",
        ("tests/broker/delivery/test_queue_locks.py",),
    ),
    Mutant(
        "a member gives back another one's lease",
        "broker/delivery/queue_locks.py",
        "if lease is not None and lease.client_id == client_id:",
        "if lease is not None:",
        ("tests/broker/delivery/test_queue_locks.py",),
    ),
    Mutant(
        "retries never end among the dead letters",
        "broker/handlers/send_back.py",
        "if record.reconsume_times >= times_max or header.delay_level < 0:",
        "if header.delay_level < 0:",
        ("tests/broker/handlers/test_send_back.py",),
    ),
    Mutant(
        "a retry forgets how often it was tried",
        "broker/handlers/send_back.py",
        "min(record.reconsume_times + 1, INT_MAX)",
        "record.reconsume_times",
        ("tests/broker/handlers/test_send_back.py",),
    ),
    Mutant(
        "a queue whose members are unknown is divided all the same",
        "client/_consume/rebalancer.py",
        "        if not members:\n            return None\n",
        "        if not members:\n            return frozenset(queues)\n",
        ("tests/client/_consume/test_rebalancer.py", "tests/test_allocation.py"),
    ),
    Mutant(
        "a group that has stored offset 0 begins at the date all the same",
        "client/_consume/offsets.py",
        "if may_be_new and not await offsets.is_stored(queue):",
        "if may_be_new:",
        ("tests/client/_consume/test_offsets.py",),
    ),
    Mutant(
        "a new group with a date gets all of a young topic",
        "client/_consume/offsets.py",
        "may_be_new = stored == 0 and isinstance(start, datetime) and not is_retry",
        "may_be_new = False",
        ("tests/client/_consume/test_offsets.py",),
    ),
    Mutant(
        "a name server keeps silent brokers",
        "nameserver/routes.py",
        "if live.heard_ms + SILENCE_MS_MAX < now_ms",
        "if live.heard_ms + SILENCE_MS_MAX < 0",
        ("tests/nameserver",),
    ),
    Mutant(
        "tags are not compared",
        "storage/fetch.py",
        "        if by_code is not None and not by_code(code):\n            continue\n",
        "",
        ("tests/storage/test_fetch.py",),
    ),
    Mutant(
        "a fetch shows what may not be seen yet",
        "storage/fetch.py",
        "        or last >= visible_end\n",
        "",
        (
            "tests/storage/test_fetch.py",
            "tests/storage/test_store.py",
            "tests/broker/delivery/test_ack_gate.py",
        ),
    ),
)

_SENDING: Final = (
    Mutant(
        "a send gives up before its time is over",
        "client/_send/tries.py",
        "is_last = self.retries is not None and self._count > self.retries",
        "is_last = self._count > (2 if self.retries is None else self.retries)",
        ("tests/client/_send/test_tries.py", "tests/client/_send/test_sender.py"),
    ),
    Mutant(
        "each try of a send has time of its own",
        "client/_send/sender.py",
        "left_ms = max(1, int((deadline - began_s) * 1000))",
        "left_ms = 3000",
        ("tests/client/_send/test_sender.py",),
    ),
    Mutant(
        "a send waits for others longer than its time",
        "client/_send/sender.py",
        "await slots.enter(deadline)",
        "await slots.enter()",
        ("tests/client/_send/test_sender.py",),
    ),
    Mutant(
        "sends to a silent broker keep those to other brokers waiting",
        "client/_send/sender.py",
        "slots = self._slots[queue.broker_name]\n                    if slots is not held:",
        "slots = self._slots['']\n                    if slots is not held:",
        ("tests/client/_send/test_sender.py",),
    ),
    Mutant(
        "a send keeps its slot while it waits for its next try",
        "client/_send/sender.py",
        "if held is not None and self._rules.max_in_flight > 1:",
        "if held is not None and self._rules.max_in_flight < 1:",
        ("tests/client/_send/test_sender.py",),
    ),
    Mutant(
        "with one slot, another send comes before a retry",
        "client/_send/sender.py",
        "if held is not None and self._rules.max_in_flight > 1:",
        "if held is not None and self._rules.max_in_flight > 0:",
        ("tests/client/_send/test_sender.py",),
    ),
    Mutant(
        "a retry goes to another queue than the chosen one",
        "client/_send/sender.py",
        "pick(topic_route.queues) if pick else",
        "pick(topic_route.queues) if pick and tries is None else",
        ("tests/client/_send/test_sender.py",),
    ),
    Mutant(
        "a producer that closes forgets gathered sends",
        "client/producer.py",
        "            steps.append(self._gatherer.close)\n",
        "            pass\n",
        ("tests/client/_send/test_gatherer.py", "tests/client/test_producer.py"),
    ),
    Mutant(
        "gathered sends to one queue overtake each other",
        "client/_send/gatherer.py",
        "        lane = self._lanes[queue]\n",
        "        lane = FifoSemaphore(1)\n",
        ("tests/client/_send/test_gatherer.py",),
    ),
    Mutant(
        "a transaction commits whose half message is not safe",
        "client/transactions.py",
        "        state = TransactionState.ROLLBACK\n",
        "        state = TransactionState.COMMIT\n",
        ("tests/client/test_transactions.py",),
    ),
)

_CONSUMING: Final = (
    Mutant(
        "a loop acknowledges a message before its body has run",
        "client/consumer.py",
        """            raise StopAsyncIteration
        return self._current""",
        """            raise StopAsyncIteration
        self._current.ack()
        return self._current""",
        ("tests/client/test_consumer.py",),
    ),
    Mutant(
        "a message is acknowledged by getting it",
        "client/consumer.py",
        """            raise _stopped()
        return message
""",
        """            raise _stopped()
        message.ack()
        return message
""",
        ("tests/client/test_consumer.py",),
    ),
    Mutant(
        "a failed block acknowledges its message",
        "client/received.py",
        "        self.retry()\n        return True\n",
        "        self.ack()\n        return True\n",
        ("tests/client/test_received.py", "tests/client/test_consumer.py"),
    ),
    Mutant(
        "a cancelled block acknowledges its message",
        "client/received.py",
        "        if not isinstance(error, Exception):\n            return False\n",
        "        if not isinstance(error, Exception):\n            self.ack()\n            return False\n",
        ("tests/client/test_received.py", "tests/client/test_consumer.py"),
    ),
    Mutant(
        "a failed message is done although no broker took it back",
        "client/_consume/redelivery.py",
        """        if await self._send_back.send_back(delivery, delay_level):
            delivery.done()
""",
        """        delivery.done()
        if await self._send_back.send_back(delivery, delay_level):
            pass
""",
        (
            "tests/client/_consume/test_redelivery.py",
            "tests/client/_consume/test_failed_messages.py",
        ),
    ),
    Mutant(
        "a message whose time is over stays with its handler",
        "client/_consume/in_progress.py",
        "if now - since < self.timeout_s:",
        "if True:",
        ("tests/client/_consume/test_in_progress.py",),
    ),
    Mutant(
        "a record whose size is that of the one before is taken for one with the same parts",
        "protocol/records/record.py",
        "        if sizes != self._sizes or sys_flag & HOST_BITS != self._host_bits:",
        "        if size != self._pack.size:",
        ("tests/protocol/records/test_record.py",),
    ),
    Mutant(
        "bodies larger than the consumer allows are decompressed",
        "client/_consume/fetcher.py",
        "            self._context.uncompressed_max,\n",
        "            1 << 40,\n",
        ("tests/client/_consume/test_failed_messages.py",),
    ),
    Mutant(
        "a queue whose lock is lost is consumed further",
        "client/_consume/order_locks.py",
        "                self._until[queue] = 0.0\n",
        "                pass\n",
        (
            "tests/client/_consume/test_order_locks.py",
            "tests/client/_consume/test_ordered_consumer.py",
        ),
    ),
    Mutant(
        "a member notices no lost lock",
        "client/_consume/assignment.py",
        "lost = [] if self._locks is None else self._locks.ended()",
        "lost: list[MessageQueue] = []",
        (
            "tests/client/_consume/test_ordered_consumer.py",
            "tests/client/_consume/test_assignment.py",
        ),
    ),
    Mutant(
        "an ordered queue goes to another member while its message is handled",
        "client/_consume/assignment.py",
        "            async with asyncio.timeout(BUSY_S_MAX):\n                await _idle(fetcher)\n",
        "            async with asyncio.timeout(BUSY_S_MAX):\n                pass\n",
        (
            "tests/client/_consume/test_ordered_consumer.py",
            "tests/client/_consume/test_assignment.py",
        ),
    ),
    Mutant(
        "what was prefetched before a seek is delivered",
        "client/_consume/fetcher.py",
        """        self.drop()
        self._former.append""",
        """        self._former.append""",
        ("tests/client/_consume/test_control.py",),
    ),
    Mutant(
        "a pull that a seek overtakes goes on",
        "client/_consume/assignment.py",
        "        running.task.cancel()\n        running.fetcher.move_to(offset)\n",
        "        running.fetcher.move_to(offset)\n",
        ("tests/client/_consume/test_control.py",),
    ),
    Mutant(
        "a paused queue is delivered",
        "client/_consume/prefetch.py",
        "if delivery.process_queue.deliverable:",
        "if not delivery.process_queue.dropped:",
        ("tests/client/_consume/test_prefetch.py", "tests/client/_consume/test_control.py"),
    ),
    Mutant(
        "a queue is pulled before the listener knows it",
        "client/_consume/assignment.py",
        "waits=self._calls is not None",
        "waits=False",
        ("tests/client/_consume/test_rebalance_calls.py",),
    ),
    Mutant(
        "the offset of a revoked queue is stored before the listener has ended",
        "client/_consume/assignment.py",
        "        if stores and not is_lost:\n",
        "        if stores and is_lost:\n",
        ("tests/client/_consume/test_rebalance_calls.py",),
        also=(
            Change(
                "client/_consume/assignment.py",
                "        if stores and is_lost:\n            await self._store_all(dropped)\n"
                "        if self._calls is not None:\n",
                "        if stores:\n            await self._store_all(dropped)\n"
                "        if self._calls is not None:\n",
            ),
        ),
    ),
    Mutant(
        "a member that lost a queue replaces the offset of the next one",
        "client/_consume/assignment.py",
        "            await self.drop(lost, is_lost=True)\n",
        "            await self.drop(lost)\n",
        ("tests/client/_consume/test_rebalance_calls.py",),
    ),
    Mutant(
        "a listener cannot commit queues that go",
        "client/_consume/assignment.py",
        "        fetchers |= self._revoking\n",
        "",
        ("tests/client/_consume/test_rebalance_calls.py", "tests/client/_consume/test_commit.py"),
    ),
    Mutant(
        "closing stores offsets that the application did not commit",
        "client/_consume/assignment.py",
        "        if self._context.auto_commit:\n            await attempt(self._commit",
        "        if True:\n            await attempt(self._commit",
        ("tests/client/_consume/test_commit.py",),
    ),
    Mutant(
        "the last commit of a queue may be undone by its last pull",
        "client/_consume/assignment.py",
        "            await asyncio.sleep(wait_s)",
        "            pass",
        ("tests/client/_consume/test_commit.py",),
    ),
    Mutant(
        "a commit that a pull undid is not repeated",
        "client/_consume/assignment.py",
        "            self._offsets.distrust(queue)",
        "            pass",
        ("tests/client/_consume/test_commit.py",),
    ),
    Mutant(
        "a pull stores offsets that the application did not commit",
        "client/_consume/fetcher.py",
        "commits = self._context.auto_commit and not self._context.broadcast",
        "commits = not self._context.broadcast",
        ("tests/client/_consume/test_commit.py",),
    ),
    Mutant(
        "closing does not wait for handlers",
        "client/consumer.py",
        "                await run.ended.wait()\n",
        "                pass\n",
        ("tests/client/_consume/test_handlers.py",),
    ),
    Mutant(
        "a signal cancels handlers at once",
        "client/_consume/handlers.py",
        "limit.reschedule(now_s() + self._drain_s)",
        "limit.reschedule(now_s())",
        ("tests/client/_consume/test_handlers.py",),
    ),
    Mutant(
        "a signal stops only one of the consumers that wait for it",
        "common/stop_signals.py",
        "    for stop in stops:\n",
        "    for stop in stops[:1]:\n",
        ("tests/common/test_stop_signals.py",),
    ),
    Mutant(
        "a client that is closed leaves those open that share its session",
        "client/_net/session_user.py",
        "guests = list(reversed(self._guests))",
        "guests: list[SessionUser] = []",
        ("tests/test_cluster.py",),
    ),
    Mutant(
        "each client of a session waits for a silent broker when it is closed",
        "client/_net/close_limit.py",
        "AWAY_S: Final = 0.05",
        "AWAY_S: Final = 3.0",
        ("tests/client/_net/test_session_user.py",),
    ),
    Mutant(
        "a message comes again while the thread of its cancelled run works on it",
        "client/_consume/handlers.py",
        "in_thread.add_done_callback(partial(_settle_at_end, message))",
        "message.retry()",
        ("tests/client/_consume/test_handlers.py",),
    ),
    Mutant(
        "a close whose step fails skips the others",
        "client/_net/tasks.py",
        """    async with AsyncExitStack() as stack:
        for step in reversed(steps):
            stack.push_async_callback(step)
""",
        """    for step in steps:
        await step()
""",
        ("tests/client/_net/test_tasks.py", "tests/client/_net/test_session_user.py"),
    ),
)

_WAITING: Final = (
    Mutant(
        "a rolled back message is delivered",
        "broker/transactions/half_messages.py",
        '''        """End a transaction; consumers never get its message."""
        self._append(*self._ends(half))''',
        '''        """End a transaction; consumers never get its message."""
        self._append()''',
        (
            "tests/broker/transactions/test_half_messages.py",
            "tests/broker/handlers/test_transactions.py",
        ),
    ),
    Mutant(
        "an open transaction is asked about for ever",
        "broker/transactions/open_table.py",
        "half.checks >= self.checks_max",
        "False",
        ("tests/broker/transactions/test_open_table.py",),
    ),
)

_KEEPING: Final = (
    Mutant(
        "retention takes files behind the last checkpoint",
        "storage/old_files.py",
        "            mark.position if mark is not None else (yield from self._durable_in_queues()),\n        )",
        "            log.flushed_to,\n        )",
        ("tests/storage/test_old_files.py", "tests/properties"),
        once="durable messages were in no queue after retention and a crash",
        simulation=("tests/simulation/test_going_files.py", "--histories=1800"),
        also=(
            Change(
                "storage/dispatch/dispatch.py",
                " or (queue.max_offset < offset and queue.log_end <= self._log.start)",
                "",
            ),
            Change(
                "storage/recovery.py",
                "        if crashed and not has_mark:\n            _drop_stale(log, queue)\n",
                "",
            ),
        ),
    ),
    Mutant(
        "a full drive does not refuse messages",
        "broker/maintenance/cleaning.py",
        "        is_full = usage.worst > limit",
        "        is_full = usage.worst > limit + 1",
        ("tests/broker/maintenance/test_cleaning.py",),
    ),
    Mutant(
        "files go before their time",
        "storage/retention.py",
        "modified_ms[count] + self.kept_ms <= now_ms",
        "modified_ms[count] <= now_ms",
        ("tests/storage/test_retention.py",),
    ),
    Mutant(
        "what the clock was set by since counts for the age of files",
        "broker/maintenance/cleaning.py",
        "            + self._clock.set_since(end - 1)\n",
        "",
        ("tests/broker/maintenance/test_cleaning.py", "tests/simulation/test_retention.py"),
    ),
    Mutant(
        "a place whose message is deleted is taken for the end of its queue",
        "broker/handlers/pull.py",
        "FetchStatus.OFFSET_TOO_SMALL: ResponseCode.PULL_OFFSET_MOVED",
        "FetchStatus.OFFSET_TOO_SMALL: ResponseCode.PULL_NOT_FOUND",
        ("tests/broker/handlers/test_pull.py", "tests/simulation/test_retention.py"),
    ),
    Mutant(
        "producers are asked while their answers are refused",
        "broker/transactions/check_back.py",
        "                self._halves.require_room()\n",
        "",
        ("tests/broker/transactions/test_check_back.py",),
    ),
    Mutant(
        "a broker registers with its first name server only",
        "broker/maintenance/registration.py",
        "for address in config.name_servers}",
        "for address in config.name_servers[:1]}",
        ("tests/broker/maintenance/test_registration.py", "tests/simulation/test_several.py"),
    ),
)
_PACK: Final = """        try:
            if not LONG_MIN <= tag_code <= LONG_MAX:
                raise ValueError(f"tag code {tag_code}")
            record.pack_into(buffer, index, pack, queue_offset if has_entry else 0, at, store_ms)
        except (struct_error, ValueError) as error:
            buffer[index : index + size] = bytes(size)
            raise ValueError(NO_PLACE.format(error)) from error
"""
_TAKE: Final = "        self._log.take(at + size)\n"
_PACKED_THEN_TAKEN: Final = _PACK + _TAKE
_TAKEN_THEN_PACKED: Final = _TAKE + _PACK
_HALF_READ: Final = """\
        half = half_with(pairs, offset, offset, stored_ms, stored_ms)
"""
_HALF_STORED: Final = """\
        at = self._append(
            NewRecord(
                queue, body, properties, flag, kept, born_ms, born_host, host, reconsume_times
            )
        )
"""
_REFUSING: Final = (
    Mutant(
        "the log ends behind a record before that is packed",
        "storage/writer.py",
        _PACKED_THEN_TAKEN,
        _TAKEN_THEN_PACKED,
        ("tests/storage/test_append.py",),
    ),
    Mutant(
        "an int of a header may be a long",
        "protocol/headers/__init__.py",
        "    Int32: read_int,\n",
        "    Int32: read_long,\n",
        ("tests/protocol", "tests/broker/test_number_requests.py"),
    ),
    Mutant(
        "numbers of stored messages may have any length",
        "common/java.py",
        "            text if text.isascii() and text.isdigit() and len(text) < _DIGITS_MAX else _digits(text)\n",
        "            text\n",
        ("tests/protocol", "tests/broker/test_hostile_properties.py"),
    ),
    Mutant(
        "a property of a stored message that is no number is an error",
        "common/java.py",
        "return read(text) if text is not None else otherwise\n    except ValueError:",
        "return read(text) if text is not None else otherwise\n    except KeyError:",
        ("tests/broker/test_hostile_properties.py",),
        once="one half message with a number of 5,000 digits kept the broker from starting again",
        simulation=_STRANGE_HALVES,
        also=(
            Change(
                "broker/transactions/half_messages.py",
                _HALF_READ + _HALF_STORED,
                _HALF_STORED + _HALF_READ,
            ),
        ),
    ),
    Mutant(
        "a producer may name another transaction",
        "broker/transactions/half_messages.py",
        "if name not in m.OF_HALF_MESSAGES}",
        "if name}",
        ("tests/broker/test_hostile_properties.py",),
        once="a half message with a copied property took another transaction's place",
        simulation=_STRANGE_HALVES,
        also=(
            Change(
                "broker/transactions/half_messages.py",
                "if first is not None and _message(first) != _message(record):",
                "if False:",
            ),
        ),
    ),
    Mutant(
        "references of a JSON text are not counted",
        "protocol/json/dialect.py",
        "        self._values_left -= values\n",
        "",
        ("tests/protocol/json/test_dialect.py",),
        once="one heartbeat of 90 KB, full of references, stopped the broker",
        simulation=_HEAVY,
    ),
    Mutant(
        "a topic may have any number of queues",
        "broker/metadata/topics.py",
        'refuse_beyond(queues, max(had, limits.topic_queue_nums_max), what, "topicQueueNumsMax")',
        "pass",
        ("tests/broker/config/test_limits.py",),
        once="statistics of a topic with 2³¹-1 queues stopped the broker",
        simulation=_HOSTILE,
    ),
    Mutant(
        "long answers do not let others in between",
        "transport/slices.py",
        "            async with self._turns:\n                await asyncio.sleep(0)\n",
        "            async with self._turns:\n",
        ("tests/transport/test_slices.py",),
    ),
    Mutant(
        "connections that hold most are closed when their peer has read all",
        "transport/peers.py",
        "            peer.abort()\n            held.size -= sizes[peer]\n",
        "            held.size -= sizes[peer]\n",
        ("tests/transport/test_peers.py",),
    ),
    Mutant(
        "a record is believed whose parts do not add up to its size",
        "protocol/records/layout.py",
        "    if properties_end != end:\n",
        "    if properties_end > end:\n",
        ("tests/protocol/records/test_layout.py",),
    ),
    Mutant(
        "a record in a block is believed whose body has less than no bytes",
        "protocol/records/block.py",
        "adds_up & (body_at <= body_end)",
        "adds_up",
        ("tests/protocol/records/test_layout.py",),
    ),
    Mutant(
        "rolled back records get queue entries",
        "protocol/records/message.py",
        "    return sys_flag & TRANSACTION_PREPARED == 0\n",
        "    return sys_flag & TRANSACTION_BITS != TRANSACTION_PREPARED\n",
        ("tests/protocol/records/test_layout.py",),
    ),
    Mutant(
        "a body may become any size",
        "protocol/records/compression.py",
        "    if len(plain) > size_max:\n",
        "    if False:\n",
        ("tests/protocol/records/test_compression.py",),
        once="a message of 2 MB took 4 GB in each consumer that decompressed it",
        simulation=("tests/simulation/test_large_bodies.py",),
    ),
    Mutant(
        "consumers hand out damaged bodies",
        "protocol/records/compression.py",
        "    if crc and checksum(body) != crc:\n",
        "    if False:\n",
        ("tests/client/test_received.py",),
        once="a body that a drive had changed reached applications without a word",
        simulation=("tests/simulation/test_damaged_bodies.py",),
    ),
    Mutant(
        "a damaged body comes again as a retry, whose checksum fits it",
        "client/_consume/redelivery.py",
        "_UNRECOVERABLE: ClassVar[type[MessageError]] = DamagedBody",
        "_UNRECOVERABLE: ClassVar[tuple[type[MessageError], ...]] = ()",
        ("tests/client/_consume/test_failed_messages.py",),
    ),
    Mutant(
        "one address keeps all places",
        "common/shared_places.py",
        "self._most >= self.count(newcomer) + 2",
        "False",
        (
            "tests/common/test_shared_places.py",
            "tests/transport/test_peers.py",
            "tests/replication/test_server.py",
        ),
    ),
    Mutant(
        "one client keeps all places for waiting pulls",
        "broker/delivery/held_pulls.py",
        "if self._networks.largest_must_yield_to(network):",
        "if False:",
        ("tests/broker/delivery/test_held_pulls.py",),
    ),
    Mutant(
        "a header of megabytes is learnt",
        "broker/handlers/fastpath/cache.py",
        'self._unknown = frame if int.from_bytes(frame[1:4], "big") <= _HEADER_SIZE_MAX else b""',
        "self._unknown = frame",
        ("tests/broker/handlers/fastpath/test_cache.py",),
    ),
    Mutant(
        "a filter reads all that nobody wants at once",
        "storage/fetch.py",
        "            if dropped >= _DROPPED_MAX:",
        "            if dropped < 0:",
        ("tests/storage/test_fetch.py",),
    ),
    Mutant(
        "a broker that stops is promoted",
        "broker/process.py",
        "if self._is_stopping or self.broker is None:",
        "if self.broker is None:",
        ("tests/broker/test_process.py",),
    ),
    Mutant(
        "an expression of any length counts as one subscription",
        "broker/metadata/members.py",
        "sum(1 + size // _CHARACTERS_MAX for size in sizes)",
        "sum(1 for _ in sizes)",
        ("tests/broker/config/test_limits.py",),
    ),
)

_FAILING: Final = (
    Mutant(
        "a number that does not fit is found when half a record is packed",
        "storage/writer.py",
        _PACKED_THEN_TAKEN,
        _TAKEN_THEN_PACKED,
        ("tests/broker/test_number_requests.py",),
        once="one SEND whose flag does not fit left a hole in the log, which stopped slaves and cut promoted logs",
        simulation=_HOSTILE,
        also=(
            Change(
                "protocol/headers/__init__.py", "    Int32: read_int,\n", "    Int32: read_long,\n"
            ),
        ),
    ),
    Mutant(
        "a file that could not be deleted is closed again",
        "storage/files/deletion.py",
        "        file, self._file = self._file, None\n",
        "        file = self._file\n",
        ("tests/storage/test_old_files.py",),
        once="one file that could not be deleted once closed the log's descriptor, which was never synced again",
        simulation=("tests/simulation/test_failing_drives.py", "--histories=200"),
    ),
    Mutant(
        "an SQL92 expression may have any length",
        "broker/handlers/members.py",
        "        if size > _SQL_SIZE_MAX:",
        "        if False:",
        (
            "tests/broker/config/test_limits.py",
            "tests/broker/test_request_budget.py",
            "tests/broker/handlers/test_sql_pulls.py",
        ),
        once="an SQL92 text of 7 MB stopped the broker",
        simulation=_HEAVY,
        also=(
            Change(
                "protocol/filters/sql92/__init__.py",
                "    if len(expression) > EXPRESSION_SIZE_MAX:\n",
                "    if False:\n",
            ),
            Change(
                "protocol/filters/sql92/parser.py",
                "        if self.terms > TERMS_MAX:\n",
                "        if False:\n",
            ),
        ),
    ),
    Mutant(
        "connections that do not read are closed and not aborted",
        "transport/wire.py",
        """            self._transport.abort()

    def broken""",
        """            self._transport.close()

    def broken""",
        ("tests/broker/test_deaf_clients.py", "tests/transport"),
        once="clients that do not read kept memory and descriptors for ever",
        simulation=_STRANGERS,
    ),
    Mutant(
        "replies are kept for a client that does not read",
        "transport/wire.py",
        "        if self.is_open and not self.is_writable:\n",
        "        if False:\n",
        (
            "tests/broker/test_deaf_clients.py",
            "tests/broker/handlers/test_replies.py",
            "tests/broker/handlers/test_client_proxy.py",
        ),
        once="replies to a client that does not read took memory without a bound",
        simulation=_STRANGERS,
    ),
    Mutant(
        "half requests are kept without a bound",
        "transport/peers.py",
        "        if requests > self.requests.limit:\n",
        "        if False:\n",
        ("tests/transport/test_peers.py",),
        once="half frames took memory without a bound",
        simulation=_STRANGERS,
    ),
    Mutant(
        "a slave that is gone when its connection is looked at has an address",
        "replication/server.py",
        'self.host, port = (transport.get_extra_info("peername") or _GONE)[:2]',
        'self.host, port = transport.get_extra_info("peername")[:2]',
        ("tests/replication/test_server.py", "tests/replication"),
        once="each connection that was reset at once put a traceback into the log",
        simulation=_STRANGERS,
    ),
    Mutant(
        "a slave tells of a damaged record each time it tries to go on",
        "storage/dispatch/dispatch.py",
        "if self.stopped is None or self.stopped.at != error.at:",
        "if True:",
        ("tests/storage/log/test_holes.py",),
        once="a slave with bad bytes wrote five lines a second for ever",
        simulation=("tests/simulation/test_damage.py", "--histories=300"),
        also=(
            Change(
                "storage/dispatch/dispatch.py",
                "self._log.end if self._hole_ends.is_done else -1",
                "-1",
            ),
        ),
    ),
    Mutant(
        "an index without room ends the start",
        "storage/recovery.py",
        """        with attempt(INDEX):
            index.flush()
""",
        """        index.flush()
""",
        ("tests/storage/test_full_drive.py",),
        once="after a crash on a full drive the broker did not start",
        simulation=_FULL_DRIVES,
    ),
    Mutant(
        "what a client sent after a large batch is stored before it",
        "transport/dispatcher.py",
        "        self._end_turn()\n        task.add",
        "        task.add",
        ("tests/broker/test_large_batches.py",),
    ),
    Mutant(
        "a large batch is stored though its topic was deleted meanwhile",
        "broker/handlers/send_planner.py",
        "        if not plan.guard.holds():",
        "        if False:",
        ("tests/broker/test_large_batches.py",),
    ),
    Mutant(
        "the records of a batch may take any size",
        "broker/handlers/batches.py",
        "if len(records.data) > self.stored_size_max",
        "if False",
        ("tests/broker/test_large_batches.py", "tests/broker/test_request_memory.py"),
    ),
    Mutant(
        "all keys of a message are chained at once",
        "storage/index/index.py",
        "        left = _CHAINED_PER_STEP",
        "        left = 1 << 40",
        ("tests/storage/index/test_index.py",),
    ),
    Mutant(
        "the fast path of sends sees no change of a group",
        "broker/handlers/send_plan.py",
        "return topics.version is topics_version and groups.version is groups_version",
        "return topics.version is topics_version",
        ("tests/broker/test_changed_tables.py",),
    ),
    Mutant(
        "the fast path of sends sees no change of a topic",
        "broker/handlers/send_plan.py",
        "return topics.version is topics_version and groups.version is groups_version",
        "return groups.version is groups_version",
        ("tests/broker/test_changed_tables.py",),
    ),
    Mutant(
        "a run of sends makes the files of all its queues",
        "broker/handlers/fastpath/record_template.py",
        "self._executor.queue_in_use(self.plan, int(queue_id))",
        "self._executor.queue(self.plan, int(queue_id))",
        ("tests/broker/handlers/fastpath/test_send.py",),
    ),
    Mutant(
        "anybody may set a name server's port",
        "nameserver/config.py",
        "return name in REMOTELY and name not in",
        "return name not in",
        ("tests/nameserver/test_handlers.py",),
        once="a client let a name server come back on another port and on all addresses",
        simulation=_HOSTILE,
    ),
    Mutant(
        "a master that takes its place back does not bring its topics",
        "nameserver/routes.py",
        "before != broker.address or version != table.version",
        "before is None or version != table.version",
        ("tests/nameserver/test_routes.py",),
        once="what a false registration said of a master's topics stayed when the master had its place again",
        simulation=("tests/simulation/test_false_brokers.py", "--histories=900"),
    ),
    Mutant(
        "nobody is told that a master is replaced while it lives",
        "nameserver/routes.py",
        "before if before != broker.address and before in self._live else None",
        "None",
        ("tests/nameserver/test_routes.py",),
    ),
    Mutant(
        "a sync that failed is tried again",
        "storage/files/sync_failure.py",
        "                self.fail(error)\n",
        "                pass\n",
        (
            "tests/storage/files/test_sync_failure.py",
            "tests/broker/maintenance/test_drive_failure.py",
        ),
        once="a second sync after a failed one went well, and SEND_OK went out for bytes that were nowhere",
        simulation=_DRIVES,
    ),
    Mutant(
        "a sync does not see that its file was deleted",
        "storage/files/mapped_file.py",
        "        self.require_name()\n",
        "",
        ("tests/storage/test_deleted_files.py",),
    ),
    Mutant(
        "a log whose file was deleted goes on",
        "storage/log/commit_log.py",
        "                self._sync_health.fail(error)\n",
        "",
        ("tests/storage/test_deleted_files.py", "tests/broker/maintenance/test_drive_failure.py"),
    ),
    Mutant(
        "what is flushed moves after a failed sync",
        "storage/log/commit_log.py",
        "        if self._sync_health.failure is None:\n            self.flushed_to",
        "        if True:\n            self.flushed_to",
        (
            "tests/storage/files/test_sync_failure.py",
            "tests/broker/maintenance/test_drive_failure.py",
        ),
        once="a sync that went well beside one that had failed made what the other had lost count as durable",
        simulation=_SYNCS,
    ),
    Mutant(
        "the name of a new file is not made durable",
        "storage/files/sync_failure.py",
        "        if self.is_new:\n",
        "        if False:\n",
        (
            "tests/storage/files/test_sync_failure.py",
            "tests/simulation/test_disk.py",
            "tests/properties",
        ),
    ),
    Mutant(
        "a start after a crash believes the system's cache",
        "storage/store.py",
        "        if self.was_crashed:\n            self._forget_cached()\n",
        "",
        (
            "tests/storage/files/test_sync_failure.py",
            "tests/broker/maintenance/test_drive_failure.py",
            "tests/simulation/test_drives.py",
        ),
        once="a start after a failed sync read pages that were not on the drive, and went on behind them",
        simulation=_DRIVES,
    ),
    Mutant(
        "a descriptor is closed again",
        "storage/files/mapped_file.py",
        "            number, self.number = self.number, -1\n",
        "            number = self.number\n",
        ("tests/storage/files/test_mapped_file.py",),
    ),
    Mutant(
        "a descriptor is closed under a sync",
        "storage/files/mapped_file.py",
        "if self._is_closing and not self._users and self.number >= 0:",
        "if self._is_closing and self.number >= 0:",
        ("tests/storage/files/test_mapped_file.py",),
    ),
    Mutant(
        "a deleted topic's queues count in the checkpoint",
        "broker/maintenance/queue_deletion.py",
        "self._slices.run(self._store.checkpoint_steps(to_delete))",
        "self._slices.run(self._store.checkpoint_steps())",
        ("tests/broker/test_files_and_threads.py",),
        once="a topic that was deleted while a checkpoint was made came back with the next crash",
        simulation=_PASSING_TOPICS,
    ),
    Mutant(
        "a topic is deleted while a checkpoint is being made",
        "broker/maintenance/queue_deletion.py",
        "        async with self._checkpointing:\n            to_delete",
        "        if True:\n            to_delete",
        ("tests/broker/test_files_and_threads.py",),
        once="a checkpoint lost its file, or counted queues that were deleted meanwhile",
        simulation=_PASSING_TOPICS,
    ),
    Mutant(
        "what recovery cuts off is not saved",
        "storage/recovery.py",
        "    save_tail(end)\n",
        "",
        ("tests/storage/log/test_saved_tail.py",),
    ),
    Mutant(
        "a master whose log is not mounted begins anew",
        "broker/component_configs.py",
        "requires_durable_log=is_master",
        "requires_durable_log=False",
        ("tests/broker/test_clamped_offsets.py",),
    ),
    Mutant(
        "recovery ends at any hole",
        "storage/recovery.py",
        "return next_ms <= known.durable_ms or not is_lost_write(log, hole)",
        "return False",
        ("tests/storage/log/test_holes.py",),
    ),
    Mutant(
        "zeros that begin a record vouch for the sector in front",
        "storage/log/holes.py",
        "    of_next = log.read(hole.end, -hole.end % SECTOR)\n",
        '    of_next = b"written"[: -hole.end % SECTOR]\n',
        ("tests/storage/log/test_holes.py",),
    ),
    Mutant(
        "an index file is named by a clock that was set back",
        "storage/index/index.py",
        'name = max(_time_name(now_ms), f"{int(newest) + 1:0{NAME_DIGITS}d}")',
        "name = _time_name(now_ms)",
        ("tests/storage/test_recovery.py",),
    ),
    Mutant(
        "recovery steps over bytes that the machine lost",
        "storage/recovery.py",
        "return next_ms <= known.durable_ms or not is_lost_write(log, hole)",
        "return True",
        ("tests/storage/log/test_holes.py",),
    ),
    Mutant(
        "a clock that is set moves what waits",
        "broker/delay/stamp_clock.py",
        "            self._note(ahead_ms)\n",
        "            pass\n",
        ("tests/broker/delay/test_delivery.py",),
        once="a wall clock that was ahead for a moment let delayed messages and retries come at once",
        simulation=(
            "tests/simulation/test_delays.py::test_a_clock_that_steps_by_hours_and_days_moves_nothing_that_waits",
        ),
    ),
    Mutant(
        "an archive believes a slave",
        "spark/_options/ranges.py",
        "        if held.is_certain or held.min <= begin <= held.max:",
        "        if True:",
        (
            "tests/spark/pipelines/archive/test_sources.py",
            "tests/spark/_options/test_ranges.py",
            "tests/spark/_read/test_backlog.py",
        ),
    ),
    Mutant(
        "a queue that lost messages is read from its beginning",
        "spark/_options/ranges.py",
        "    return held.min if position < held.min else held.max\n",
        "    return held.min\n",
        (
            "tests/spark/_options/test_ranges.py",
            "tests/spark/_read/test_backlog.py",
            "tests/spark/pipelines/archive/test_plan.py",
        ),
    ),
)

MUTANTS: Final = (
    *_ACKNOWLEDGING,
    *_RECOVERING,
    *_REPLICATING,
    *_DELIVERING,
    *_SENDING,
    *_CONSUMING,
    *_WAITING,
    *_KEEPING,
    *_REFUSING,
    *_FAILING,
)
