"""The two faults: how the engine is started and which load makes it suffer. Both are settings that people use."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Paced:
    """Clients that send at a fixed pace, set so that they ask for `share` of what one core can do on this machine."""

    spec: str  # the request class without its pace
    clients: int
    share: float


@dataclass(frozen=True, slots=True)
class Fault:
    """One set-up. `serve` are flags of `infradoc serve`, `load` are request classes of `infradoc bench`."""

    name: str
    finding: str  # what infradoc should find
    title: str
    serve: tuple[str, ...]
    load: tuple[str, ...]
    paced: Paced | None = None


# One compute thread leaves one of two cores for the front end, the clients and infradoc itself. The document clients
# send at a pace rather than without pause: a saturated tokenizer gets slower as soon as the model, freed, takes more of
# the memory bandwidth (measured: 16 % fewer documents beside 45 % more tokens), so that the fix would trade one for the
# other (docs/decisions/0008). The share leaves room for that.
TOKENIZATION = Fault(
    name="tokenization",
    finding="cpu-tokenization-bottleneck",
    title="4 clients count the tokens of 400 KB documents beside 4 chat streams; text is tokenized on the event loop",
    serve=("--omp-num-threads", "1", "--tokenizer-workers", "0", "--max-model-len", "512"),
    load=("chat:closed=4,kind=chat,prompt_tokens=24,max_tokens=12-36,ignore_eos=true",),
    paced=Paced("docs:closed=4,kind=tokenize,bytes=400000", clients=4, share=0.64),
)
KV = Fault(
    name="kv",
    finding="kv-thrashing-preemption",
    title="16 clients share a KV pool of 24 blocks of 16 tokens: running requests take each other's blocks",
    serve=(
        *("--omp-num-threads", "1", "--kv-pool-tokens", "384", "--block-size", "16"),
        *("--max-model-len", "128", "--max-num-seqs", "16"),
    ),
    load=("kv:closed=16,kind=completion,prompt_tokens=16-32,max_tokens=24-48,ignore_eos=true",),
)
FAULTS: tuple[Fault, ...] = (TOKENIZATION, KV)
MODEL = "smollm2-135m"
