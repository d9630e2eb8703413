"""vLLM's and torch's collect_env: host.cpus, gpu.name, driver_version, target.version."""

from __future__ import annotations

import re
from collections.abc import Sequence

from infradoc.artefacts.model import Artefact, Segment
from infradoc.artefacts.spans import Span, runs
from infradoc_rules.lazy_pattern import lazy
from infradoc_rules.maps.info import parse_value
from infradoc_rules.model import Fact

_ROWS = (
    ("host.cpus", re.compile(r"^CPU\(s\): +(\d{1,6})$")),
    ("gpu.name", re.compile(r"^(?:GPU models and configuration: )?GPU 0: (.{2,60}?)(?: \(UUID.*)?$")),
    ("driver_version", re.compile(r"^Nvidia driver version: ([\d.]{3,20})$")),
    ("target.version", re.compile(r"^vLLM Version: v?(\d[\w.+-]{0,30})")),
    ("torch_version", re.compile(r"^(?:PyTorch version: |\[pip3\] torch==)(\d[\w.+]{0,30})$")),
)
_OTHERS = lazy(
    r"^(?:OS|GCC version|Clang version|CMake version|Libc version|Python version|Python platform|Is CUDA available"
    r"|CUDA runtime version|CUDA_MODULE_LOADING set to|GPU models and configuration|CPU|Architecture"
    r"|Thread\(s\) per core|On-line CPU\(s\) list|Core\(s\) per socket|Socket\(s\)"
    r"|ROCM used to build PyTorch|Is debug build):"
)


class CollectEnvKind:
    """The report that vLLM's and torch's issue templates ask for."""

    name = "collect_env"

    def spans(self, lines: Sequence[str]) -> list[Span]:
        """Runs of at least four of its lines."""
        return runs(lines, _mine, gap=3, at_least=4)

    def read(self, segment: Segment) -> Artefact:
        """The facts above; a version says which engine it is."""
        out = Artefact()
        for index, line in enumerate(segment.lines):
            for name, pattern in _ROWS:
                found = pattern.match(line)
                if found is not None:
                    value = (parse_value(found[1]) if name == "host.cpus" else None) or found[1]
                    out.facts.append(Fact(name, value, "file", segment.place(index)))
                    out.system = "vllm" if name == "target.version" else out.system
        return out


def _mine(line: str) -> bool:
    return _OTHERS.match(line) is not None or any(pattern.match(line) for _, pattern in _ROWS)
