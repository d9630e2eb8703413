"""Lines of trainers, of communication libraries, of kernels and of devices: what each says, and what says nothing."""

from __future__ import annotations

import pytest

from infradoc_rules.patterns import scan
from infradoc_rules.summaries import summarise

GAVE_UP = [
    "RuntimeError: NCCL communicator was aborted on rank 3.",
    "RuntimeError: wait timeout after 1800000ms, keys: /worker/attempt_0/default/4",
    "Rank 0 successfully reached monitoredBarrier, but received errors while waiting for send/recv from rank 3.",
    "Find timeout task: op_type: ALLREDUCE, global_rank: 3, rank: 3, nccl_comm: 0x55, timeout: 1800000 ms",
    "DEADLINE_EXCEEDED: Barrier timed out. Id: sync_global_devices. 3/4 tasks already at the barrier.",
    "torch.distributed.elastic.rendezvous.api.RendezvousClosedError",
    "pair.cc:144] timed out connecting: SO_ERROR: Connection timed out, remote=[10.0.0.2]:30211",
    "[PG ID 0 PG GUID 0 Rank 5] Received a dump signal due to a collective timeout from this local rank",
]
BROKE = [
    ("NET/IB : Got completion from peer 10.1.1.7<41231> with status=12 opcode=129 len=0 vendor err 129", "lost"),
    ("[rank1]: torch.distributed.DistNetworkError: Failed to recv, got 0 bytes. Connection was likely closed.", "lost"),
    ("Net : Connection closed by remote peer node2<50260>", "network"),
    ("socketProgressOpt: Call to recv from 172.16.0.9<33759> failed : Connection reset by peer", "network"),
    ("TCPStore.cpp:125] [c10d] recvValue failed on SocketImpl(fd=6): failed to recv, got 0 bytes", "network"),
]
TOO_MUCH = [
    ("RESOURCE_EXHAUSTED: Shared memory size limit exceeded: requested 4194304, available: 101376", 4194304),
    ("OutOfResources: shared memory (98304 > 65536)", 98304),
    ("RuntimeError: Shared memory exceeds 96KB: 146944 bytes", None),
    ("INTERNAL: Shared memory requested exceeds device resources.", None),
    ("error: local memory (100352) exceeds limit (65536) in function 'fwd'", 100352),
    ("RuntimeError: FlashInfer Internal Error: Invalid configuration : NUM_MMA_Q=1 NUM_MMA_KV=1", None),
]
NAMED = [
    ("srun: error: node17: task 0: Out Of Memory", "host_oom_kill"),
    ("Child process unexpectedly failed with an exit code 9. pid=118", "worker_died"),
    ("[8d6b:3039 :0:3095] Caught signal 7 (Bus error: nonexistent physical address)", "shm_short"),
    ("DCGM_FI_DEV_ECC_DBE_VOL_TOTAL: Detected a volatile double-bit ECC error in GPU 3", "device_error"),
    ("clocks_event_reasons.sw_thermal_slowdown: Active", "gpu_clocks_reason"),
    ("RuntimeError: value cannot be converted to type at::Half without overflow", "train_overflow"),
    ("Marlin does not fit: GPTQMarlinConfig requires capability 80, current device 70", "quantization_unsupported"),
    ("RuntimeError: AWQ_Marlin requires compute capability 8.0 or newer; found 7.5", "quantization_unsupported"),
    ("Assertion failed: FP8 is unsupported on with SM Version < 89", "quantization_unsupported"),
    ("Using the model-agnostic default `max_length` (=20) to control the generation length.", "request_finished"),
]
SILENT = [
    "[./simpleP2P] - Starting...",
    "iteration 100: NCCL communicator created on rank 3",
    "clocks_event_reasons.sw_thermal_slowdown: Not Active",
    "shared memory per block: 101376 bytes",
    "ibstat: no device",
    "wait timeout after 5 minutes is the default",
]


@pytest.mark.parametrize("line", GAVE_UP)
def test_a_rank_that_gave_up_waiting(line):
    assert {event.name for event in scan([line]).events} == {"nccl_timeout"}
    assert fact([line], "collective.cause") is not None


@pytest.mark.parametrize(("line", "code"), BROKE)
def test_a_connection_that_broke(line, code):
    assert code in {event.fields.get("code") for event in scan([line]).events if event.name == "nccl_error"}


@pytest.mark.parametrize(("line", "needed"), TOO_MUCH)
def test_a_kernel_that_asks_for_too_much(line, needed):
    found = [event for event in scan([line]).events if event.name == "kernel_resources"]
    assert [event.fields.get("needed_bytes") for event in found] == [needed]


@pytest.mark.parametrize(("line", "name"), NAMED)
def test_what_a_line_is_named(line, name):
    assert name in {event.name for event in scan([line]).events}


@pytest.mark.parametrize("line", SILENT)
def test_what_says_nothing(line):
    told = {event.name for event in scan([line]).events}
    assert not told & {"p2p_blocked", "nccl_timeout", "gpu_clocks_reason", "kernel_resources", "nccl_network"}


def fact(lines, name):
    read = scan(lines)
    found = summarise(read.events, dict(read.facts), None).get(name)
    return None if found is None else found.value


ENDED = "*** STEP 88121.0 ON node03 CANCELLED AT 2025-03-14T06:22:10 DUE TO {why} ***"
LOST = "ncclRemoteError: A call failed possibly due to a network error or a remote process exiting prematurely."


def test_a_job_that_a_broken_host_ended_was_not_stopped_by_anyone():
    assert fact([ENDED.format(why="NODE node07 FAILURE"), LOST], "collective.cause") == "gone"
    assert fact([ENDED.format(why="TIME LIMIT"), LOST], "collective.cause") == "stopped"


PEERS = [
    "h:1:1 [0] NCCL INFO Channel 00/0 : 0[0] -> 1[1] via P2P/direct pointer",
    "h:1:1 [0] NCCL INFO comm 0x1 rank 0 nranks 2 cudaDev 0 busId 41000 commId 0x5 - Init COMPLETE",
]
REFUSED = "nvidia 0000:41:00.0: AMD-Vi: Event logged [IO_PAGE_FAULT domain=0x24 address=0x3c0c0000000 flags=0x20]"
ACS = "\t\tACSCtl:\tSrcValid+ TransBlk- ReqRedir+ CmpltRedir+"
BROKEN_OFF = ["Traceback (most recent call last):", '  File "a.py", line 1, in f', "    x()", "KeyboardInterrupt"]


def test_direct_copies_that_the_host_redirects():
    assert fact([*PEERS, REFUSED], "comm.hang") == "blocked"
    assert fact([*PEERS, REFUSED, "step 10 loss 2.1"], "comm.hang") == "none"
    assert fact([*PEERS, ACS], "comm.hang") == "none"
    assert fact([*PEERS, ACS, *BROKEN_OFF], "comm.hang") == "blocked"


OFF = ["export NCCL_IB_DISABLE=1", "torchrun --nnodes 4 --nproc_per_node 8 train.py"]
CARD = ["CA 'mlx5_0'", "State: Active", "Link layer: InfiniBand"]


def test_a_setting_that_leaves_cards_unused():
    assert fact([*OFF, *CARD], "comm.slow_path") == "ib_disabled"
    assert fact(OFF, "comm.slow_path") is None  # no card is seen
    assert fact([OFF[0], *CARD], "comm.slow_path") == "none"  # one host needs no network


WRAPPED = [
    "model, opt = fabric.setup(model, opt)",
    "model = FSDP(model, auto_wrap_policy=policy)",
    "out = ddp_model(x)",
]
BACKWARD = ["fabric.backward(loss)", "(model(mb).loss / n).backward()", "(out.loss / accum).backward()"]


@pytest.mark.parametrize(("wrapped", "backward"), list(zip(WRAPPED, BACKWARD, strict=True)))
def test_a_loop_that_reduces_in_each_micro_step(wrapped, backward):
    loop = ["torchrun --nnodes=4 train.py", wrapped, backward, "if (i + 1) % accum_steps == 0:"]
    assert fact(loop, "train.sync") == "every_micro_step"
    assert fact([*loop, "with model.no_sync():"], "train.sync") == "unknown"
    assert fact(loop[1:], "train.sync") == "unknown"  # on one host there is little to save


PROBE = "generating GPU P2P access cache in /root/.cache/vllm/gpu_p2p_access_cache_for_0,1.json"


def test_a_test_of_direct_copies_that_never_ends():
    assert fact([PROBE, "^C", "step 1 loss 2.0"], "comm.hang") == "stalled"
    assert fact([PROBE, "step 1 loss 2.0", "^C"], "comm.hang") is None
