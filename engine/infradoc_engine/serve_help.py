"""What `infradoc serve --help` says beyond its flags. Imports nothing heavy: help must not wait for torch."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

SERVE = (
    "Serves a model over an OpenAI-compatible API (/v1/chat/completions, /v1/completions) with /metrics, /health and "
    "/admin beside it. Without a flag it serves SmolLM2-135M on http://127.0.0.1:8000."
)
KNOBS = (
    "Most can also be changed while it serves (`infradoc fix`, or PATCH /admin/config). In brackets after the default: "
    "live = in force at the next step; drain = running requests first finish or are set back, none is lost; restart = "
    "at the start only."
)
# As `--fault NAME` takes them; a test holds this list to the faults themselves, which cannot be imported without torch.
FAULTS: Mapping[str, str] = {
    "leak_blocks": "requests keep KV blocks when they end (every=1, blocks=1, requests=0: no end)",
    "memory_hog": "holds device memory (bytes=268435456)",
    "host_memory_leak": "the process grows (bytes_per_second=8388608)",
    "stall": "the engine stops while requests wait (seconds=3600)",
    "slow_step": "each step takes longer (seconds=0.05)",
    "cpu_burn": "busy processes take the cores (processes=4)",
    "drop_prefix_hits": "the prefix cache finds nothing",
    "busy_front_end": "the HTTP front end is busy (share=0.8, period_seconds=0.1)",
}


def epilog(runtime_dir: Path) -> str:
    """Examples, faults, and how to ask /admin. `runtime_dir` is where the token file goes."""
    width = max(map(len, FAULTS)) + 2
    faults = "\n".join(f"  {name:<{width}}{means}" for name, means in FAULTS.items())
    return f"""\
SIZE: 800MB, 2GiB or a number of bytes.

examples:
  infradoc serve
  infradoc serve --port 8080 --kv-pool-tokens 4096 --max-num-seqs 8
  infradoc serve ./model.gguf --device-memory-bytes 2GiB
  infradoc serve --enable-faults --fault stall:seconds=60

faults, to practise on (all need --enable-faults; parameters with their defaults in brackets):
{faults}

admin: /admin/config shows and changes the settings. It needs a token: INFRADOC_ADMIN_TOKEN if that is set at the start,
else a new one in the file engine-PORT.token in {runtime_dir} (INFRADOC_RUNTIME_DIR
names another folder), there while the server runs. On the same machine infradoc finds it by itself. By hand:
  TOKEN=$(cat {runtime_dir}/engine-8000.token)
  curl -H "Authorization: Bearer $TOKEN" http://127.0.0.1:8000/admin/config
  curl -X PATCH -H "Authorization: Bearer $TOKEN" -H 'If-Match: *' -d '{{"max_num_seqs": 8}}' \\
    http://127.0.0.1:8000/admin/config
"""
