"""Events after which something does not go on, and what each of them ends. A new one is added here, and only here.

A traceback is in no column: libraries print harmless ones, so each place judges it by what follows.
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import Flag, auto


class Ends(Flag):
    """What is over with an event.

    START: a start that has not answered yet.
    SERVICE: a server that had answered is broken; its calm metrics do not take that back.
    PROCESS: it is the cause; what dies or is killed after it was cleaned up.
    WAIT: ranks that wait for one another have their reason in it, so that it is no hang of their links.
    RUN: what was given broke off with it, also where no rule says why.
    """

    START = auto()
    SERVICE = auto()
    PROCESS = auto()
    WAIT = auto()
    RUN = auto()


_ENDS: Mapping[str, Ends] = {
    "cuda_oom": Ends.START | Ends.SERVICE | Ends.PROCESS | Ends.WAIT | Ends.RUN,
    "engine_failed": Ends.START | Ends.SERVICE | Ends.RUN,
    "worker_died": Ends.START | Ends.SERVICE | Ends.RUN,
    "weights_do_not_fit": Ends.START | Ends.PROCESS | Ends.WAIT | Ends.RUN,
    "kv_no_memory": Ends.START | Ends.PROCESS | Ends.WAIT | Ends.RUN,
    "memory_below_request": Ends.START | Ends.PROCESS | Ends.WAIT | Ends.RUN,
    "memory_moved": Ends.START | Ends.PROCESS,
    "quantization_unsupported": Ends.START | Ends.PROCESS,
    "kernel_resources": Ends.START | Ends.SERVICE | Ends.PROCESS,
    "host_alloc_failed": Ends.START | Ends.SERVICE,
    "host_oom_kill": Ends.SERVICE | Ends.WAIT,
    "xid": Ends.PROCESS | Ends.WAIT,
    "gpu_lost": Ends.SERVICE | Ends.PROCESS,
    "kv_check_failed": Ends.SERVICE | Ends.PROCESS,
    "nccl_error": Ends.SERVICE | Ends.PROCESS,
    "nccl_timeout": Ends.SERVICE | Ends.PROCESS,
    "output_invalid": Ends.SERVICE,
    "probe_failed": Ends.PROCESS,
    "shm_ring_wait": Ends.SERVICE,
    "shm_short": Ends.SERVICE | Ends.PROCESS,
    "swap_exhausted": Ends.SERVICE,
    "watchdog_timeout": Ends.SERVICE | Ends.PROCESS,
}


def _that_end(what: Ends) -> frozenset[str]:
    return frozenset(name for name, ends in _ENDS.items() if what in ends)


END_A_START = _that_end(Ends.START)
END_SERVICE = _that_end(Ends.SERVICE)
END_A_PROCESS = _that_end(Ends.PROCESS)
END_A_WAIT = _that_end(Ends.WAIT)
END_A_RUN = _that_end(Ends.RUN)
