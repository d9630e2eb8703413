from functools import partial

import pytest
from hypothesis import given
from hypothesis import strategies as st

from infradoc.artefacts.kinds.host_tools import HostToolsKind
from infradoc.artefacts.model import Segment

GIB = 1 << 30
TOP = """top - 10:21:30 up 2 days,  2:10,  1 user,  load average: 3.41, 3.02, 2.88
%Cpu(s):  6.9 us,  0.6 sy,  0.0 ni, 92.4 id,  0.0 wa

    PID USER      PR  NI    VIRT    RES    SHR S  %CPU  %MEM     TIME+ COMMAND
   2211 root      20   0   38.1g   3.5g   1.1g R  99.3   0.6  22:10.77 VLLM::APIServer
   2400 root      20   0   92.4g   9216   2.2g R  52.1   1.8  10:31.06 python -m engine --port 1"""
DOCKER = """2026-03-17T07:10:02Z
CONTAINER ID   NAME  CPU %     MEM USAGE / LIMIT     MEM %     NET I/O           BLOCK I/O         PIDS
6d1f0c92be41   vlm   214.18%   11.5GiB / 62.71GiB   18.21%    1.94GB / 31.2MB   16.4GB / 4.1kB    231
2026-03-17T07:40:02Z
CONTAINER ID   NAME  CPU %     MEM USAGE / LIMIT     MEM %     NET I/O           BLOCK I/O         PIDS
6d1f0c92be41   vlm   208.77%   24.5GiB / 62.71GiB   39.80%    9.71GB / 155MB    16.4GB / 4.1kB    231"""


@pytest.fixture(scope="module")
def read(read_kind):
    return partial(read_kind, HostToolsKind())


def test_top_gives_processes_load_and_idle(read):
    events, _ = read(TOP)
    processes = [dict(event.fields) for event in events if event.name == "process_usage"]
    assert [(row["name"], row["cores"]) for row in processes] == [
        ("VLLM::APIServer", pytest.approx(0.993)),
        ("python -m engine --port 1", pytest.approx(0.521)),
    ]
    assert processes[0]["bytes"] == 3.5 * GIB
    assert processes[1]["bytes"] == 9216 * 1024  # a bare number of top is KiB
    host = {key: value for event in events if event.name == "host_usage" for key, value in event.fields.items()}
    assert host == {"load": 3.41, "idle": pytest.approx(0.924)}


def test_docker_stats_over_time_is_one_series(read):
    events, _ = read(DOCKER)
    assert [event.fields["bytes"] for event in events] == [11.5 * GIB, 24.5 * GIB]
    assert events[1].fields["seconds"] - events[0].fields["seconds"] == 1800
    assert events[0].fields["limit_bytes"] == round(62.71 * GIB)
    assert [event.source for event in events] == ["paste:3", "paste:6"]


@pytest.mark.parametrize(
    ("unit", "rows"),
    [
        ("-h", "Mem:  64Gi 58Gi 1Gi 1Gi 5Gi 4Gi\nSwap: 8.0Gi 2.0Gi 6.0Gi"),
        ("-m", "Mem:  65536 59392 1024 1024 5120 4096\nSwap: 8192 2048 6144"),
        ("", "Mem:  67108864 60817408 1048576 1048576 5242880 4194304\nSwap: 8388608 2097152 6291456"),
    ],
)
def test_free_in_every_unit(unit, rows, read):
    _, facts = read(f"$ free {unit}\n        total  used  free  shared  buff/cache   available\n{rows}\n")
    assert facts["host.memory_bytes"] == 64 * GIB
    assert facts["host.available_bytes"] == 4 * GIB
    assert facts["host.swap_bytes"] == 8 * GIB
    assert facts["host.swap_used_bytes"] == 2 * GIB


def test_df_nproc_and_lscpu(read):
    text = "Filesystem Size Used Avail Use% Mounted on\ntmpfs 64M 60M 4M 94% /dev/shm\nnproc\n16\nCPU(s):   16\n"
    _, facts = read(text)
    assert facts == {"shm.size_bytes": 64 << 20, "shm.used_bytes": 60 << 20, "host.cpus": 16}


def test_a_hand_made_series_and_kubectl_top(read):
    events, _ = read("t_h rss_mb\n0 100\n1 200\n\nNAME  CPU(cores)  MEMORY(bytes)\nvllm-0  9721m  2048Mi\n")
    assert [(event.fields["seconds"], event.fields["bytes"]) for event in events[:2]] == [
        (0, 100 << 20),
        (3600, 200 << 20),
    ]
    assert dict(events[2].fields)["cores"] == pytest.approx(9.721)


def test_log_lines_below_a_table_are_not_taken():
    lines = [
        *TOP.splitlines(),
        "INFO 10-05 02:14:13 metrics.py:351] Avg prompt throughput: 1.0 tokens/s, Running: 1 reqs",
    ]
    assert HostToolsKind().spans(lines) == [(0, len(lines) - 1)]


@given(
    st.lists(
        st.text(st.characters(blacklist_categories=("Cs",), blacklist_characters="\n\r"), max_size=60), max_size=12
    )
)
def test_any_text_is_survived(read, lines):
    kind = HostToolsKind()
    for start, end in kind.spans(lines):
        assert 0 <= start < end <= len(lines)
        kind.read(Segment(kind.name, "x", start + 1, lines[start:end]))


def test_the_flags_of_a_server_in_a_row_with_its_whole_command(read):
    _, facts = read(
        "USER PID %CPU %MEM VSZ RSS TTY STAT START TIME COMMAND\n"
        "root 77 350 12.3 99 8888 ? Sl 10:00 12:33 python3 -m vllm.entrypoints.openai.api_server "
        "--model m --max-num-seqs 4\n"
        "root 99 0.0 0.0 99 88 ? S 10:00 0:00 ollama serve\n"
    )
    assert facts["max_num_seqs"] == 4 and facts["target.system"] == "vllm"


PS_BY_HAND = """ps -o pid,rss,cmd -p 33
    PID   RSS CMD
     33 1048576 engine

# two hours later
    PID   RSS CMD
     33 2097152 engine
# after 5 hours
    PID   RSS CMD
     33 3145728 engine"""


def test_captions_in_words_say_when_snapshots_were_taken(read):
    events, _ = read(PS_BY_HAND)
    assert [event.fields["seconds"] for event in events] == [0.0, 7_200.0, 18_000.0]
    assert [event.fields["bytes"] for event in events] == [GIB, 2 * GIB, 3 * GIB]


@given(st.text(max_size=200))
def test_any_caption_is_read_without_an_error(read, text):
    read(f"# {text}\n    PID   RSS CMD\n     33 1048576 engine")


def test_top_says_what_memory_and_swap_hold(read):
    _, known = read(
        "MiB Mem :  64211.0 total,    512.1 free,  63011.0 used,    688.1 buff/cache\n"
        "MiB Swap:  32768.0 total,   9012.0 free,  23756.0 used.    611.0 avail Mem"
    )
    assert known["host.memory_bytes"] == 64211 << 20
    assert known["host.available_bytes"] == 611 << 20
    assert known["host.swap_used_bytes"] == 23756 << 20


def test_vmstat_gives_what_moves_after_its_first_row(read):
    _, known = read(
        " r  b   swpd   free   buff  cache   si   so    bi    bo   in   cs us sy id wa st\n"
        " 2  9 100 210312  1024  91022 0 0 90211 51100 9021 12011  6  9 12 73  0\n"
        " 1 11 200 201022  1024  90211 100 50 91022 49022 9120 12210  5 10 11 74  0\n"
        " 1 11 300 201022  1024  90211 200 150 91022 49022 9120 12210  5 10 11 74  0"
    )
    assert known["host.swap_rate"] == 250 * 1024
    assert known["host.swap_used_bytes"] == 300 << 10


def test_mpstat_and_uptime_say_cores_idle_and_load(read):
    events, facts = read(
        "Linux 6.8.0 (node7)     11/02/2025      _x86_64_        (4 CPU)\n"
        "10:10:05     CPU    %usr   %nice    %sys %iowait    %irq   %soft  %steal  %guest  %gnice   %idle\n"
        "10:10:10     all   96.10    0.00    3.60    0.00    0.00    0.10    0.00    0.00    0.00    0.20\n"
        " 10:10:12 up 11 days,  2:01,  1 user,  load average: 14.21, 13.90, 12.02"
    )
    host = {key: value for event in events if event.name == "host_usage" for key, value in event.fields.items()}
    assert host == {"idle": pytest.approx(0.002), "load": 14.21}
    assert facts["host.cpus"] == 4


def test_free_over_time_is_a_series_of_the_host(read):
    table = "  total  used  free  shared  buff/cache  available\nMem:  {}  1Gi  1Gi  1Gi  1Gi  {}Gi"
    events, _ = read("\n".join(f"1{n}:00\n" + table.format("31Gi", 29 - 9 * n) for n in range(3)))
    rows = [event.fields for event in events if event.name == "process_usage"]
    assert [row["bytes"] >> 30 for row in rows] == [2, 11, 20]
    assert [row["seconds"] - rows[0]["seconds"] for row in rows] == [0, 3600, 7200]
