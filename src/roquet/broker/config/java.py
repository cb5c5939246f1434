"""Settings of broker.conf that only a Java program can use: thread pools, Netty, JVM statistics.

They are accepted and shown again, so that configuration files of Apache's broker work unchanged.
None has an effect. A default of 0 stands for a default that Apache computes from the number of
processors.
"""

from __future__ import annotations

from dataclasses import dataclass

from roquet.common.settings import setting


@dataclass(frozen=True, slots=True)
class JavaSettings:
    """Settings without effect, accepted because files written for Apache's broker have them."""

    send_message_thread_pool_nums: int = 0
    put_message_future_thread_pool_nums: int = 0
    pull_message_thread_pool_nums: int = 0
    process_reply_message_thread_pool_nums: int = 0
    query_message_thread_pool_nums: int = 0
    admin_broker_thread_pool_nums: int = 16
    client_manage_thread_pool_nums: int = 32
    consumer_manage_thread_pool_nums: int = 32
    heartbeat_thread_pool_nums: int = 0
    end_transaction_thread_pool_nums: int = 0
    send_thread_pool_queue_capacity: int = 10_000
    put_thread_pool_queue_capacity: int = 10_000
    reply_thread_pool_queue_capacity: int = 10_000
    query_thread_pool_queue_capacity: int = 20_000
    client_manager_thread_pool_queue_capacity: int = 1_000_000
    consumer_manager_thread_pool_queue_capacity: int = 1_000_000
    heartbeat_thread_pool_queue_capacity: int = 50_000
    end_transaction_pool_queue_capacity: int = 100_000

    broker_fast_failure_enable: bool = True
    wait_time_mills_in_send_queue: int = 200
    wait_time_mills_in_pull_queue: int = 5000
    wait_time_mills_in_heartbeat_queue: int = 31_000
    wait_time_mills_in_transaction_queue: int = 3000
    flush_consumer_offset_history_interval: int = 60_000
    filter_server_nums: int = 0
    high_speed_mode: bool = False
    commercial_enable: bool = True
    commercial_timer_count: int = 1
    commercial_trans_count: int = 1
    commercial_big_count: int = 1
    commercial_base_count: int = 1
    max_delay_time: int = 40
    transfer_msg_by_heap: bool = True
    disable_consume_if_consumer_read_slowly: bool = False
    consumer_fallbehind_threshold: int = 16 << 30
    auto_delete_unused_stats: bool = False
    isolate_log_enable: bool = False
    rmq_address_server_domain: str = ""
    rmq_address_server_sub_group: str = ""

    server_worker_threads: int = 8
    server_callback_executor_threads: int = 0
    server_selector_threads: int = 3
    server_oneway_semaphore_value: int = 256
    server_async_semaphore_value: int = 64
    server_socket_snd_buf_size: int = 0
    server_socket_rcv_buf_size: int = 0
    server_socket_backlog: int = 1024
    server_pooled_byte_buf_allocator_enable: bool = True
    use_epoll_native_selector: bool = False
    write_buffer_high_water_mark: int = 0
    write_buffer_low_water_mark: int = 0
    client_worker_threads: int = 4
    client_callback_executor_threads: int = 0
    client_oneway_semaphore_value: int = 65_535
    client_async_semaphore_value: int = 65_535
    client_socket_snd_buf_size: int = 0
    client_socket_rcv_buf_size: int = 0
    client_channel_max_idle_time_seconds: int = 120
    client_close_socket_if_timeout: bool = True
    client_pooled_byte_buf_allocator_enable: bool = False
    connect_timeout_millis: int = 3000
    channel_not_active_interval: int = 60_000
    use_tls: bool = setting(False, "useTLS")
