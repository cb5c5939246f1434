"""Settings of broker.conf for SQL92 filters.

See docs/broker/configuration.md#how-the-file-is-read and docs/broker/filters.md#sql92.
"""

from __future__ import annotations

from dataclasses import dataclass

from roquet.common.settings import setting
from roquet.protocol.filters.bloom import BloomShape


@dataclass(frozen=True, slots=True)
class FilterSettings:
    """Settings of SQL92 filters and their Bloom filters; `filter_data_clean_time_span` is in ms.

    `max_error_rate_of_bloom_filter` (percent) and `expect_consumer_num_use_filter` must not change
    while a store has extension units: the filter bits in these were computed with them.
    """

    enable_property_filter: bool = False
    filter_support_retry: bool = False
    filter_data_clean_time_span: int = setting(86_400_000, at_least=0)
    enable_calc_filter_bit_map: bool = False
    max_error_rate_of_bloom_filter: int = setting(20, at_least=1, at_most=99)
    expect_consumer_num_use_filter: int = setting(32, at_least=1, at_most=10_000)

    @property
    def bloom(self) -> BloomShape:
        return BloomShape(self.max_error_rate_of_bloom_filter, self.expect_consumer_num_use_filter)
