"""What may stand in messages, commands and bodies."""

from __future__ import annotations

import string

from hypothesis import strategies as st

from roquet.common.units import PhysicalOffset, QueueOffset
from roquet.protocol.bodies.tables import DataVersion, Registration, TopicConfig, TopicTable
from roquet.protocol.records.record import Record
from roquet.protocol.remoting.codes import LANGUAGES
from roquet.protocol.remoting.command import BINARY, JSON, Command

int32 = st.integers(-(2**31), 2**31 - 1)
int64 = st.integers(-(2**63), 2**63 - 1)
text = st.text(st.characters(exclude_categories=["Cs"]), max_size=30)
filled_text = text.filter(bool)
names = st.text(string.ascii_letters + string.digits + "%|_-", min_size=1, max_size=30)
hosts = st.one_of(st.binary(min_size=8, max_size=8), st.binary(min_size=20, max_size=20))


def commands(header_type: int) -> st.SearchStrategy[Command]:
    """Those that the form can carry: in the binary one an empty text is the same as none."""
    is_json = header_type == JSON
    values = text if is_json else filled_text
    return st.builds(
        Command,
        code=int32 if is_json else st.integers(-(2**15), 2**15 - 1),
        fields=st.dictionaries(text, values, max_size=5),
        body=st.binary(max_size=100),
        opaque=int32,
        flag=st.integers(0, 3),
        remark=st.none() | values,
        language=st.sampled_from(LANGUAGES),
        version=st.integers(0, 2**15 - 1),
        header_type=st.just(header_type),
    )


any_command = st.one_of(commands(JSON), commands(BINARY))

records = st.builds(
    Record,
    queue_id=int32,
    flag=int32,
    queue_offset=int64.map(QueueOffset),
    physical_offset=int64.map(PhysicalOffset),
    sys_flag=int32,
    born_ms=int64,
    born_host=hosts,
    store_ms=int64,
    store_host=hosts,
    reconsume_times=int32,
    prepared_offset=int64.map(PhysicalOffset),
    body=st.binary(max_size=200),
    topic=names,
    properties_text=text.filter(lambda text: not text.endswith("\0")),
)

topic_configs = st.builds(
    TopicConfig,
    name=names,
    read_queues=int32,
    write_queues=int32,
    perm=int32,
    filter_type=st.sampled_from(["SINGLE_TAG", "MULTI_TAG"]),
    sys_flag=int32,
    order=st.booleans(),
)
versions = st.builds(DataVersion, int64, int64)
registrations = st.builds(
    Registration,
    st.builds(
        TopicTable,
        st.lists(topic_configs, max_size=5).map(
            lambda topics: {topic.name: topic for topic in topics}
        ),
        versions,
    ),
    st.lists(text, max_size=3).map(tuple),
)
