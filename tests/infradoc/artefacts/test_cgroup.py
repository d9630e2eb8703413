from functools import partial

import pytest
from hypothesis import given
from hypothesis import strategies as st

from infradoc.artefacts.kinds.cgroup import CgroupKind
from infradoc.artefacts.model import Segment

V2 = """cat /sys/fs/cgroup/cpu.max
400000 100000
cat /sys/fs/cgroup/cpu.stat
usage_usec 5934857
nr_periods 12000
nr_throttled 9000
throttled_usec 884000000
/sys/fs/cgroup/memory.max:137438953472
/sys/fs/cgroup/memory.events:oom_kill 3"""
V1 = """/sys/fs/cgroup/cpu/cpu.cfs_quota_us: 200000
nr_periods 100
nr_throttled 10
throttled_time 2000000000
/sys/fs/cgroup/memory/memory.limit_in_bytes: 9223372036854771712"""


@pytest.fixture(scope="module")
def read(read_kind):
    return partial(read_kind, CgroupKind())


def test_version_2(read):
    events, facts = read(V2)
    assert dict(events[0].fields) == {"periods": 12000, "throttled": 9000, "seconds": 884.0}
    assert events[0].source == "paste:6"
    assert facts == {
        "cgroup.cpu_quota": 4.0,
        "cgroup.throttled_share": 0.75,
        "cgroup.memory_limit_bytes": 137438953472,
        "cgroup.oom_kills": 3,
    }


def test_version_1_counts_nanoseconds_and_writes_no_limit_as_a_huge_number(read):
    events, facts = read(V1)
    assert events[0].fields["seconds"] == 2.0
    assert facts == {"cgroup.cpu_quota": 2.0, "cgroup.throttled_share": 0.1}


@pytest.mark.parametrize("text", ["max 100000", "no quota is set in cpu.max here as far as I know", "12\n13\n14"])
def test_no_limit_and_prose_say_nothing(text, read):
    assert read(text) == ([], {})


@given(
    st.lists(
        st.text(st.characters(blacklist_categories=("Cs",), blacklist_characters="\n\r"), max_size=60), max_size=12
    )
)
def test_any_text_is_survived(read, lines):
    kind = CgroupKind()
    for start, end in kind.spans(lines):
        kind.read(Segment(kind.name, "x", start + 1, lines[start:end]))
