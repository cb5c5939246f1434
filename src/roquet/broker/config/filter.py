"""What broker.conf says of filters that are no tag expressions.

See docs/broker/configuration.md#how-the-file-is-read and docs/broker/filters.md#sql92.
"""

from __future__ import annotations

from dataclasses import dataclass

from roquet.common.settings import setting
from roquet.protocol.filters.bloom import BloomShape


@dataclass(frozen=True, slots=True)
class FilterSettings:
    """`filter_data_clean_time_span` in ms. The two numbers of the Bloom filter must stay what they were when a store's
    notes were written.
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
