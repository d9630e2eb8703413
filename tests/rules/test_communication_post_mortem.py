"""From lines of NCCL and of trainers to what they mean together."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from infradoc_rules.model import Event, Fact
from infradoc_rules.patterns import scan
from infradoc_rules.summaries import collectives, communication, summarise

PREFIX = "node-a:36702:37881 [0] NCCL INFO "
WATCHDOG = (
    "[rank{rank}]:[E430 05:09:48.8 ProcessGroupNCCL.cpp:1] [Rank {rank}] Watchdog caught collective operation timeout: "
    "WorkNCCL(SeqNum={seq}, OpType=ALLREDUCE, NumelIn=1, NumelOut=1, Timeout(ms)=600000) ran for 600009 milliseconds "
    "before timing out."
)


def events_of(*lines, source="log"):
    return list(scan(lines, source=source).events)


def one(line):
    found = events_of(line)
    assert len(found) == 1, found
    return found[0]


def links(link, gpus=2):
    pairs = [(a, b) for a in range(gpus) for b in range(gpus) if a != b]
    return [Event("topology_link", 0, {"a": f"GPU{a}", "b": f"GPU{b}", "link": link}) for a, b in pairs]


def facts_of(events, **facts):
    ordered = [Event(e.name, i, e.fields, e.time, e.phase, e.source, e.text, e.repeat) for i, e in enumerate(events, 1)]
    held = {name: Fact(name, value, "file") for name, value in facts.items()}
    return {name: fact.value for name, fact in summarise(ordered, held, None).items()}


@pytest.mark.parametrize(
    ("text", "path", "via"),
    [
        ("Channel 00/0 : 15[7] -> 0[0] [receive] via NET/Socket/0", "NET", "NET/Socket/0"),
        ("Ring 00 : 0[8000] -> 1[9000] [send] via NET/IB/0/GDRDMA", "NET", "NET/IB/0/GDRDMA"),
        ("Ring 00 : 15 -> 0 [send] via NET/Socket/0", "NET", "NET/Socket/0"),
        ("Channel 00 : 1[1] -> 0[0] via SHM/direct/direct", "SHM", "SHM/direct/direct"),
        ("Ring 01 : 9[0] -> 10[0] via direct shared memory", "direct shared memory", "direct shared memory"),
        ("Channel 01/0 : 0[0] -> 1[1] via P2P/CUMEM/read", "P2P", "P2P/CUMEM/read"),
        ("Ring 00 : 0[0] -> 1[1] via P2P/direct pointer", "P2P", "P2P/direct"),
    ],
)
@pytest.mark.parametrize("prefix", [PREFIX, "NCCL INFO ", ""])
def test_paths_of_all_versions(text, path, via, prefix):
    event = one(prefix + text)
    assert (event.name, event.fields["path"], event.fields["via"]) == ("nccl_transport", path, via)
    assert ("host" in event.fields) is (prefix == PREFIX)


def test_a_watchdog_line_of_any_age():
    new = one(WATCHDOG.format(rank=2, seq=3))
    assert new.fields["rank"] == 2 and new.fields["sequence"] == 3 and new.fields["timeout_seconds"] == 600
    old = one(
        "[E ProcessGroupNCCL.cpp:1] [Rank 6] Watchdog caught collective operation timeout: "
        "WorkNCCL(OpType=ALLREDUCE, Timeout(ms)=1800000) ran for 1802246 milliseconds before timing out."
    )
    assert old.fields["rank"] == 6 and "sequence" not in old.fields


def test_sockets_between_hosts_with_rdma_cards():
    events = events_of(PREFIX + "Channel 00/0 : 8[0] -> 0[0] [receive] via NET/Socket/0")
    assert facts_of(events, **{"train.nodes": 2, "topo.nics": 2})["comm.slow_path"] == "ib_not_used"
    assert facts_of(events, **{"train.nodes": 2})["comm.slow_path"] == "none"  # nothing faster is known to be there
    assert facts_of(events, **{"train.nodes": 2, "topo.nics": 2, "nccl_ib": False})["comm.slow_path"] == "ib_disabled"


def test_missing_infiniband_on_one_host_is_nothing():
    events = events_of(
        PREFIX + "NET/IB : No device found.",
        PREFIX + "Using network Socket",
        PREFIX + "Channel 00/0 : 0[0] -> 1[1] via P2P/IPC",
    )
    assert facts_of([*links("NV12"), *events], **{"topo.nvlink": True, "topo.nics": 2})["comm.slow_path"] == "none"


@pytest.mark.parametrize(
    ("link", "settings", "verdict"),
    [("NV18", {}, "local_over_shm"), ("NV18", {"nccl_p2p": False}, "p2p_disabled"), ("PHB", {}, "none")],
)
def test_shared_memory_against_the_links(link, settings, verdict):
    events = [*links(link), *events_of(PREFIX + "Channel 00 : 1[1] -> 0[0] via SHM/direct/direct")]
    facts = {"topo.nvlink": link.startswith("NV"), "topo.gpus": 2, **settings}
    assert facts_of(events, **facts)["comm.slow_path"] == verdict


def test_only_the_pair_that_nvlink_joins_counts():
    pairs = [Event("topology_link", 0, {"a": "GPU0", "b": "GPU1", "link": "NV4"})]
    pairs += [Event("topology_link", 0, {"a": "GPU1", "b": "GPU2", "link": "SYS"})]
    events = events_of(PREFIX + "Channel 00 : 1[1] -> 2[2] via SHM/direct/direct")
    assert facts_of([*pairs, *events], **{"topo.nvlink": True})["comm.slow_path"] == "none"


def test_one_gpu_for_each_container():
    lines = [
        "docker run -e NVIDIA_VISIBLE_DEVICES=0 train",
        "docker run -e NVIDIA_VISIBLE_DEVICES=1 train",
        PREFIX + "Channel 00/0 : 1[0] -> 0[0] [receive] via NET/Socket/0",
    ]
    facts = facts_of([*links("NV1"), *events_of(*lines)], **{"topo.nvlink": True, "topo.gpus": 2})
    assert facts["comm.slow_path"] == "local_over_net"


def test_one_device_of_docker_for_each_container():
    starts = [f"docker run --gpus device={gpu} --name w{gpu} image python train.py" for gpu in (0, 1)]
    lines = [*starts, "n1:1:1 [0] NCCL INFO Channel 00/0 : 0[0] -> 1[1] [send] via NET/Socket/0", *ready(2)]
    assert facts_of(events_of(*lines))["comm.slow_path"] == "local_over_net"


@pytest.mark.parametrize("said", ["2 nodes, InfiniBand NDR", "200Gb/s RoCE between the hosts", "p4d.24xlarge"])
def test_a_fabric_that_is_named_in_words(said):
    lines = ["n1:1:1 [0] NCCL INFO Using network Socket", "Channel 00/0 : 7[7] -> 8[0] [receive] via NET/Socket/0"]
    assert facts_of(events_of(said, *lines))["comm.rdma"] is True


def test_a_connection_that_is_refused_ends_the_run():
    lines = [
        "DistBackendError: NCCL error in: NCCLUtils.cpp:77, unhandled system error, NCCL version 2.27",
        "socketPollConnect: connect to 10.0.0.3<44321> returned Connection timed out",
    ]
    assert facts_of(events_of(*lines))["collective.cause"] == "gone"


def test_rdma_without_gpudirect():
    lines = [
        PREFIX + "NET/IB : GPU Direct RDMA Disabled for HCA 0 'mlx5_0'",
        PREFIX + "Channel 00/0 : 8[0] -> 0[0] [receive] via NET/IB/0",
    ]
    assert facts_of(events_of(*lines), **{"train.nodes": 2})["comm.slow_path"] == "gdr_off"
    lines[1] += "/GDRDMA"
    assert facts_of(events_of(*lines), **{"train.nodes": 2})["comm.slow_path"] == "none"


def test_the_late_rank_and_what_it_did():
    progress = "[default0]:Grouping texts in chunks of 2049:   8%|8  | 731000/9680440 [02:32<30:38, 4866.01 examples/s]"
    facts = facts_of(events_of(progress, *(WATCHDOG.format(rank=rank, seq=3) for rank in (2, 3, 1))))
    assert facts["collective.cause"] == "data"
    assert facts["collective.late_rank"] == 0


def test_finished_data_is_no_reason():
    progress = "Map: 100%|####| 500/500 [00:10<00:00, 50.0 examples/s]"
    facts = facts_of(events_of(progress, *(WATCHDOG.format(rank=rank, seq=900) for rank in (1, 2))))
    assert facts["collective.cause"] == "unknown"


def test_a_checkpoint_before_the_wait():
    facts = facts_of(events_of("Saving model checkpoint to out/checkpoint-500", WATCHDOG.format(rank=1, seq=900)))
    assert facts["collective.cause"] == "checkpoint"


def test_out_of_memory_first():
    lines = ["CUDA out of memory. Tried to allocate 2.00 GiB", WATCHDOG.format(rank=1, seq=900)]
    assert facts_of(events_of(*lines))["collective.cause"] == "oom"


def test_ranks_in_different_collectives():
    lines = [WATCHDOG.format(rank=0, seq=96125), WATCHDOG.format(rank=7, seq=64088), WATCHDOG.format(rank=3, seq=96125)]
    facts = facts_of(events_of(*lines))
    assert facts["collective.cause"] == "desync"
    assert facts["collective.late_rank"] == 7


def ready(count):
    text = PREFIX + "comm 0x5 rank {} nranks {} cudaDev {} nvmlDev 0 busId 1000 commId 0x1 - Init COMPLETE"
    return [text.format(rank, count, rank) for rank in range(count)]


def test_everyone_waits_in_the_first_collective():
    facts = facts_of(events_of(*ready(2), *(WATCHDOG.format(rank=rank, seq=1) for rank in (0, 1))))
    assert (facts["collective.cause"], facts["comm.hang"]) == ("p2p", "stalled")


@pytest.mark.parametrize(
    ("more", "verdict"),
    [
        ([], "none"),  # a log that was cut says nothing
        (["Processed prompts:   0%|          | 0/16 [00:00<?, ?it/s]"], "stalled"),
        (["Processed prompts: 100%|####| 16/16 [00:09<00:00,  1.7it/s]"], "none"),
        (["#        (B)    (elements)                     (us)  (GB/s)  (GB/s)"], "stalled"),
        (["# (B) (elements)", "   1024   256   float  sum  -1  8.4  0.12  0.21  0"], "none"),
        (["{'loss': 1.5, 'learning_rate': 1e-05, 'epoch': 0.1}", *[WATCHDOG.format(rank=0, seq=9000)]], "none"),
        (
            ["Processed prompts:   0%|   | 0/16 [00:00<?, ?it/s]", "CUDA out of memory. Tried to allocate 2.00 GiB"],
            "none",
        ),
    ],
)
def test_a_stall_needs_a_sign(more, verdict):
    assert facts_of(events_of(*ready(2), *more))["comm.hang"] == verdict


@pytest.mark.parametrize(
    ("before", "verdict"),
    [([], "stalled"), (["   1024   256   float  sum  -1  8.4  0.12  0.21  0"], "none")],
)
def test_a_second_try_without_peer_copies_that_gets_on(before, verdict):
    second = ["$ NCCL_P2P_DISABLE=1 ./all_reduce_perf -g 2", "# Avg bus bandwidth    : 4.01"]
    events = events_of(*ready(2), "#        (B)    (elements)   (us)  (GB/s)", *before, *second)
    assert facts_of(events)["comm.hang"] == verdict


@pytest.mark.parametrize(
    "line",
    [
        "RuntimeError: [Rank 0]: Ranks 3, 5 failed to pass monitoredBarrier in 300000 ms",
        "The client socket has timed out after 600000ms while trying to connect to (10.0.0.1, 29500).",
        "Exception: Watchdog caught collective operation timeout",
        "tensors were submitted to be reduced, gathered or broadcasted by subset of ranks and are waiting",
    ],
)
def test_other_words_for_a_collective_out_of_time(line):
    assert [event.name for event in events_of(line)] == ["nccl_timeout"]


def test_nvlink_does_not_cross_bridges():
    lines = [*ready(2), "Processed prompts:   0%|          | 0/16 [00:00<?, ?it/s]"]
    assert facts_of(events_of(*lines), **{"topo.nvlink": True})["comm.hang"] == "none"


def test_acs_names_the_reason():
    lines = [*ready(2), "ACSCtl: SrcValid+ TransBlk- ReqRedir+", "Processed prompts:   0%|   | 0/16 [00:00<?, ?it/s]"]
    assert facts_of(events_of(*lines))["comm.hang"] == "blocked"


def test_no_line_of_the_subject_gives_no_fact():
    assert list(communication.summary([Event("engine_ready", 1)], {}, "vllm")) == []
    assert list(collectives.summary([Event("engine_ready", 1)], {}, "vllm")) == []


_NAMES = st.sampled_from(
    ["nccl_transport", "nccl_ready", "nccl_network", "nccl_timeout", "nccl_setting", "topology_link"]
)
_FIELDS = st.dictionaries(
    st.sampled_from(
        ["path", "via", "rank", "ranks", "host", "net", "found", "used", "sequence", "name", "value", "a", "b"]
    ),
    st.one_of(st.integers(-3, 70000), st.booleans(), st.text(max_size=8), st.floats(allow_nan=False)),
)


@given(st.lists(st.tuples(_NAMES, _FIELDS), max_size=12))
def test_any_fields_are_survived(rows):
    events = [Event(name, order, fields, source=f"log:{order}") for order, (name, fields) in enumerate(rows, start=1)]
    for summary in (communication.summary, collectives.summary):
        list(summary(events, {}, None))


@pytest.mark.parametrize(
    ("name", "cause"),
    [("xid", "hardware"), ("gpu_lost", "hardware"), ("worker_died", "error"), ("host_oom_kill", "oom")],
)
def test_what_went_wrong_first(name, cause):
    first = Event(name, 0, {"name": "worker"}, source="other.log:1")
    facts = facts_of([first, *events_of(WATCHDOG.format(rank=1, seq=900))])
    assert facts["collective.cause"] == cause


@pytest.mark.parametrize(
    ("lines", "facts", "nodes"),
    [
        (["Channel 00/0 : 9[1] -> 0[0] [receive] via NET/Socket/0"], {}, 2),
        (["Channel 00/0 : 1[1] -> 0[0] [receive] via NET/Socket/0"], {}, 1),  # one host may do without shared memory
        (["Channel 00/0 : 0[0] -> 1[1] via P2P/IPC"], {"topo.gpus": 1}, 1),
        (["comm 0x1 rank 0 nranks 16 cudaDev 0 - Init COMPLETE", "Using network Socket"], {"topo.gpus": 8}, 2),
    ],
)
def test_hosts_by_ranks_and_devices(lines, facts, nodes):
    assert facts_of(events_of(*lines), **facts)["comm.nodes"] == nodes


def test_several_settings_on_one_line():
    line = "NCCL_DEBUG=INFO NCCL_IB_DISABLE=0 NCCL_IB_HCA=mlx5_0,mlx5_1 NNODES=2 llamafactory-cli train sft.yaml"
    found = facts_of(events_of(line, "NET/IB : No device found.", "Using network Socket"), **{"train.nodes": 2})
    assert found["comm.slow_path"] == "ib_not_used"


@pytest.mark.parametrize(
    ("lines", "cause"),
    [
        (["DistStoreError: Timed out after 1801 seconds waiting for clients. 6/8 clients joined."], "absent"),
        (
            ["ncclRemoteError: A call failed possibly due to a network error or a remote process exiting prematurely."],
            "gone",
        ),
        (["*** STEP 8.0 ON c2 CANCELLED AT 2025-02-02T06:00:12 ***", "ncclRemoteError: A call failed"], "stopped"),
        (["NCCL WARN Call to connect returned Connection refused, retrying"], None),
    ],
)
def test_runs_that_end_without_a_watchdog(lines, cause):
    assert facts_of(events_of(*lines)).get("collective.cause") == cause


def test_lines_without_a_sequence_are_no_other_collective():
    stuck = "[PG 0 Rank 2] ProcessGroupNCCL's watchdog got stuck for 600 seconds without making progress"
    lines = [WATCHDOG.format(rank=rank, seq=900) for rank in (0, 1)]
    assert facts_of(events_of(*lines, stuck))["collective.cause"] == "unknown"


@pytest.mark.parametrize(
    ("fields", "hang"),
    [
        ({"without_peer": 13.0, "with_peer": 2.1, "unfinished": False}, "slow"),
        ({"without_peer": 13.0, "unfinished": True}, "slow"),
        ({"without_peer": 13.0, "with_peer": 26.0, "unfinished": False}, None),
    ],
)
def test_measured_copies_between_devices(fields, hang):
    assert facts_of([Event("p2p_bandwidth", 0, fields)]).get("comm.hang") == hang


def test_refused_peer_copies_count_where_the_run_ends_with_them():
    line = "NCCL WARN Cuda failure 'peer access is not supported between these two devices'"
    assert "comm.hang" not in facts_of(events_of(line))
    ended = "ncclUnhandledCudaError: Call to CUDA function failed."
    assert facts_of(events_of(line, ended))["comm.hang"] == "refused"


@pytest.mark.parametrize(("devices", "peers", "hang"), [(2, True, "wrong_data"), (1, True, None), (2, False, None)])
def test_noise_from_several_devices_with_peer_copies_switched_on(devices, peers, hang):
    known = {"llamacpp.devices": devices, **({"env.GGML_CUDA_P2P": 1} if peers else {})}
    noise = [Event("output_invalid", 0, {"what": "repeated"})]
    assert facts_of(noise, **known).get("comm.hang") == hang


def test_the_socket_transport_by_name():
    lines = ["Channel 00/0 : 15[7] -> 0[0] [receive] via NET/Socket/0", "CA 'mlx5_0'"]
    assert facts_of(events_of(*lines), **{"env.NCCL_NET": "Socket"})["comm.slow_path"] == "ib_disabled"


def test_a_card_that_is_named_in_the_launch_is_there():
    lines = ["Channel 00/0 : 15[7] -> 0[0] [receive] via NET/Socket/0"]
    assert facts_of(events_of(*lines), **{"env.NCCL_IB_HCA": "mlx5_0"})["comm.slow_path"] == "ib_not_used"


@pytest.mark.parametrize(("rate", "reason"), [(231.2, "none"), (40.1, "slow_bus")])
def test_the_best_measured_rate_against_the_links(rate, reason):
    row = f"  4294967296    1073741824     float     sum      -1    32511  132.11  {rate}      0"
    found = facts_of([*events_of(row), *links("NV12")], **{"topo.nvlink": True, "topo.gpus": 2})
    assert found["comm.slow_path"] == reason


@pytest.mark.parametrize(
    ("note", "hang"),
    [
        ("with NCCL_P2P_DISABLE=1 the same script trains", "stalled"),
        ("Setting NCCL_P2P_DISABLE=1 fixes it.", "stalled"),
        ("设置 NCCL_P2P_DISABLE=1 后正常", "stalled"),
        ("NCCL_P2P_DISABLE=1 does not help", None),
        ("it still hangs with NCCL_P2P_DISABLE=1", None),
        ("export NCCL_P2P_DISABLE=1", None),
    ],
)
def test_a_note_that_it_works_without_peer_copies(note, hang):
    assert facts_of(events_of(note)).get("comm.hang") == hang


def test_a_note_beside_a_run_that_moves():
    events = events_of("NCCL_P2P_DISABLE=1 works around it", "step 10 loss 2.91", "step 11 loss 2.90")
    assert facts_of(events).get("comm.hang") is None


@pytest.mark.parametrize(("taken", "reason"), [("eno1", "wrong_interface"), ("enp37s0f0", "none")])
def test_the_slower_of_two_ports(taken, reason):
    events = events_of(
        f"{PREFIX}NET/Socket : Using [0]{taken}:192.168.3.14<0>",
        f"{PREFIX}Channel 00/0 : 2[2] -> 3[0] [receive] via NET/Socket/0",
        "$ ethtool eno1 | grep Speed",
        "        Speed: 1000Mb/s",
        "$ ethtool enp37s0f0 | grep Speed",
        "        Speed: 10000Mb/s",
    )
    facts = facts_of(events, **{"train.nodes": 2})
    assert facts["comm.slow_path"] == reason


@pytest.mark.parametrize(
    "line",
    [
        "[Rank 5] Heartbeat monitor timed out! Process will be terminated after dumping debug info.",
        "Rank 2 timed out in monitoredBarrier after 1800000 ms.",
        "EI0002: The wait execution of the Notify register times out.",
    ],
)
def test_time_limits_of_other_backends(line):
    assert {event.name for event in events_of(line)} == {"nccl_timeout"}
