"""What is said of the load: comments beside a launch command, and the commands of load generators.

Facts: client.request_rate, client.concurrency, client.requests, client.shared_prefix (bool), client.mixed_lengths
(bool), client.browser (bool), client.sequential (bool: the next request leaves when the answer to the last is there),
client.direct (bool: it talks to the model server past the router's limits), client.gate (requests that a proxy or a
client's connection pool lets through at once).
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence

from infradoc.artefacts.model import Artefact, Segment
from infradoc.artefacts.spans import Span, runs
from infradoc_rules.lazy_pattern import lazy
from infradoc_rules.model import Fact, Value

_COMMAND = lazy(
    r"\b(?:benchmark_serving\S*|bench_serving\b|vllm bench\b|benchmark_throughput\S*|bench_one_batch\S*"
    r"|genai-perf|aiperf|guidellm"
    r"|text-generation-benchmark|locust|llama-batched-bench|llmperf|token_benchmark_ray)"
)
_COMMENT = lazy(r"^\s*(?:#|//) ?(?!\d+ +\S+ +gauge|HELP |TYPE )(?P<text>.*)$")
# A sentence in prose on the load, as people write beside a log; a log line has a stamp, brackets or an assignment.
_PROSE = lazy(
    r"^\s*[-*]? ?(?:(?:We|I|Our|My|The|Each|Every|All|One|Both|Clients?|Users?|Requests?|Prompts?|Agents?)\b"
    r"|(?i:load|traffic|workload|client|clients|note|usage|setup)\s?:)(?P<text>[^\[\]{}=|]*)$"
)
_LOAD = lazy(
    r"(?i)\b(?:load|traffic|clients?|workload|concurren\w+|req/s|requests? (?:per|a|each)|open-loop|closed-loop|browser"
    r"|prompts?|prefix(?:es)?|documents?|callers?|users|script|requests?)\b"
)
_RATE = lazy(
    r"(?i)(?:--request-rate[ =]|request[_ ]rate[ =:]+)(\d+(?:\.\d+)?)"
    r"|\b(\d+(?:\.\d+)?) ?(?:req/s|requests? (?:per|a) second|rps|qps)\b"
)
_CONCURRENT = lazy(
    r"(?i)--(?:max-)?concurrency[ =](\d+)|\b(\d+) (?:concurrent|simultaneous|in flight|browser tabs"
    r"|parallel (?:requests|clients|chats?|users|streams|sessions|conversations|calls|workers|threads|agents|jobs)"
    r"|(?:requests|prompts|calls|chats|users|streams|workers) (?:in parallel|at once|at the same time))"
    r"|concurrency (?:of )?(\d+)|(?:semaphore|max_workers|ThreadPool\w*)\w*[ (=]+(\d+)"
)
_COUNT = lazy(r"(?i)--num-prompts[ =](\d+)|\b(\d+) requests\b")
_SHARED = lazy(
    r"(?i)(?:shar(?:e|ed|ing|es)\b.{0,40}\b(?:prefix|system prompt|context|preamble|instructions)"
    r"|same (?:[\w,.-]+ ){0,4}(?:system prompt|system message|prefix"
    r"|document|context|preamble|instructions|tool (?:list|definitions|schemas?))"
    r"|(?:same|identical|fixed|constant|common) (?:[\w,.-]+ ){0,4}(?:prompt|template|header|schema|rubric)\b.{0,30}"
    r"\b(?:every|each|all)\b"
    r"|\b(?:every|each|all)\b.{0,40}\b(?:starts?|begins?|opens?|carr(?:y|ies)|ha(?:s|ve)|includes?|prefixed)\b.{0,20}"
    r"\b(?:same|identical|common)\b"
    r"|(?:long|common) (?:shared )?(?:prefix|system prompt)|multi-?turn"
    r"|generated-shared-prefix"
    r"|prefix_repetition|few-shot)"
)
_UNSHARED = lazy(
    r"(?i)\b(?:no|not|never|without|nothing)\b.{0,20}\b(?:shar(?:e|ed|es|ing)|common|prefix(?:es)?)\b"
    r"|\b(?:don't|doesn't) share\b"
)
_MIXED = lazy(
    r"(?i)short (?:chats?|prompts?|requests?).{0,60}(?:long|\d+k)|(?:long"
    r"|\d+k).{0,60}short (?:chats?|prompts?|requests?)"
)
_SEQUENTIAL = lazy(
    r"(?i)\b(?:one (?:request |prompt |row |call |item |by |after )+(?:at a time|one|another|the other)|one at a time"
    r"|sequential(?:ly)?|serially|single[- ]thread(?:ed)?|(?:awaits?|waits?) (?:for|until) (?:each|every|the)"
    r" (?:answer|response|reply|result|request)"
    r"|when the (?:answer|response|reply|result) (?:to|of|for) the (?:one before|last|previous|first)\b"
    r"|after (?:the )?(?:previous|last) (?:one|answer|response|reply|request)\b"
    r"|before (?:sending|starting|the) (?:the )?next|concurrency (?:of )?(?:1|one)\b(?!\d)"
    r"|(?:synchronous|blocking|plain) (?:loop|calls?|requests?|client)"
    r"|without (?:any )?(?:async\w*|threads|concurrency)"
    r"|in a (?:simple |plain |for |while )?loop\b|for \w+ in \w+: ?(?:requests|client|openai|httpx|chat|llm))"
)
# Settings of LiteLLM, nginx, HAProxy, Envoy and Istio, Traefik, and of clients' connection pools.
_GATE = lazy(
    r"^\s*(?:- )?[\"']?(?:(?:global_)?max_parallel_requests|http2MaxRequests|http2_max_requests|max_concurrent_requests"
    r"|maxRequestsInFlight)[\"']?\s*[:=]\s*(\d+)\s*(?:,|#|$)"
    r"|^\s*limit_conn\s+\w+\s+(\d+);|^\s*server\s+\S+.*\bmax_conns=(\d+)|^\s*server\s+\S+ \S+.*\bmaxconn (\d+)"
    r"|\bTCPConnector\([^)]*\blimit(?:_per_host)?=(\d+)|\bLimits\([^)]*\bmax_connections=(\d+)"
    r"|\bHTTPAdapter\([^)]*\bpool_maxsize=(\d+)"
)
_OF_A_PAGE = ("# HELP ", "# TYPE ", "# UNIT ")  # comments of a metrics page speak of requests, too
_DIRECT = lazy(r"\btext-generation-benchmark\b")


class ClientNotesKind:
    """Comments on the load and commands of load generators."""

    name = "client_notes"

    def spans(self, lines: Sequence[str]) -> list[Span]:
        """Each such line, and the continuation lines of a command."""
        found = []
        for start, end in runs(lines, _mine):
            while end < len(lines) and lines[end - 1].rstrip().endswith("\\"):
                end += 1
            found.append((start, end))
        return found

    def read(self, segment: Segment) -> Artefact:
        """The facts above."""
        out = Artefact()
        for index, line in enumerate(segment.lines):
            for name, value in _said(line):
                out.facts.append(Fact(f"client.{name}", value, "file", segment.place(index)))
        return out


def _mine(line: str) -> bool:
    if len(line) > 2_000 or line.startswith(_OF_A_PAGE):
        return False
    if _GATE.search(line):
        return True
    comment = _COMMENT.match(line)
    if comment is not None:
        said = comment["text"]
        return any(pattern.search(said) for pattern in (_LOAD, _COMMAND, _SEQUENTIAL, _CONCURRENT))
    prose = _PROSE.match(line)
    if prose is not None and len(line.split()) >= 4:
        return any(pattern.search(line) for pattern in (_SHARED, _SEQUENTIAL, _MIXED, _CONCURRENT))
    return _COMMAND.search(line) is not None and _is_command(line)


def _is_command(line: str) -> bool:
    """A command rather than a log line that names one."""
    return bool(
        re.match(
            r"\s*(?:\$ )?(?:\w+=\S+ )*(?:python3?|vllm|genai-perf|aiperf|guidellm|text-gen|locust|llama-|\./)", line
        )
    )


def _said(line: str) -> Iterator[tuple[str, Value]]:
    for name, pattern in (("request_rate", _RATE), ("concurrency", _CONCURRENT), ("requests", _COUNT)):
        found = pattern.search(line)
        if found is not None:
            number = float(next(group for group in found.groups() if group))
            yield name, number if name == "request_rate" else int(number)
    for name, pattern in (
        ("shared_prefix", _SHARED),
        ("mixed_lengths", _MIXED),
        ("sequential", _SEQUENTIAL),
        ("direct", _DIRECT),
    ):
        if pattern.search(line) and not (name == "shared_prefix" and _UNSHARED.search(line)):
            yield name, True
    gate = _GATE.search(line)
    if gate is not None:
        yield "gate", int(next(group for group in gate.groups() if group))
    if re.search(r"(?i)browser", line):
        yield "browser", True
