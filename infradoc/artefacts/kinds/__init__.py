"""The explicit list of artefact kinds, the most telling first; a log is what is left.

A kind is a class with `name`, `read(segment)` and (see `artefacts.model.Kind`)

    spans(lines) -> list[tuple[int, int]]

the half-open line ranges [start, end) of a mixed text that are surely of this kind: one paste may hold prose, a launch
command, a log, an nvidia-smi table and a metrics page, with or without blank lines, fences or shell prompts between
them. What a kind does not claim it does not get, so `spans` must also claim a whole file of its own kind.

How a text is split (`artefacts.split`):
  1. `spans` of every kind, in the order of KINDS; where two claim a line, the earlier kind keeps it.
     A claimed range becomes one Segment(kind, source, first_line, lines); ranges that touch stay apart.
  2. Everything left is read as one log: a Segment of the whole text in which the claimed lines are empty, so that line
     numbers hold and a traceback or a rank's lines are followed across a table that was pasted between them.

Lines arrive without line ends, ANSI sequences, markdown fences and quote marks, HTML escapes, progress bars (last
state only), shell prompts, and without what tools put in front ("web-1  | ", "[pod/x/y] ", JSON records, line numbers).
A line that was broken at a width is whole on the first of its parts, and the others are blank; a text that held a log
in another form (`unfold.py`) is that log.
Stamps of journald and of `docker logs -t` stay: they are the time of log lines, and `patterns.prefix` takes them off.
`spans` sees the first 20,000 lines of a text; it must be linear in them and must not raise. `artefacts.spans` has
helpers: runs of lines, JSON values, shell commands, YAML documents. Content decides, never the name of a file.
"""

from __future__ import annotations

from infradoc.artefacts.kinds import (
    amd_smi,
    bench,
    cgroup,
    client_notes,
    collect_env,
    config,
    describe,
    host_tools,
    launch,
    launch_code,
    launch_units,
    log,
    lspci,
    memory_series,
    metrics,
    model_config,
    nvidia_smi,
    p2p_test,
    pyspy,
    quality,
    response,
    score_file,
    tally,
    tgi_args,
    topo,
    train_table,
    trainer_state,
)
from infradoc.artefacts.model import Kind

KINDS: tuple[Kind, ...] = (
    cgroup.CgroupKind(),  # cpu.stat looks like samples without labels
    metrics.MetricsKind(),
    nvidia_smi.NvidiaSmiKind(),
    amd_smi.AmdSmiKind(),
    lspci.LspciKind(),
    topo.TopologyKind(),
    p2p_test.PeerTestKind(),
    trainer_state.TrainerStateKind(),
    train_table.TrainTableKind(),
    model_config.ModelConfigKind(),
    score_file.ScoreFileKind(),
    tally.TallyKind(),
    quality.QualityKind(),
    tgi_args.TgiArgsKind(),
    bench.BenchKind(),
    host_tools.HostToolsKind(),
    memory_series.MemorySeriesKind(),
    pyspy.PySpyKind(),
    client_notes.ClientNotesKind(),
    response.ResponseKind(),
    config.ConfigKind(),
    describe.DescribeKind(),
    collect_env.CollectEnvKind(),
    launch_code.LaunchCodeKind(),
    launch_units.LaunchUnitsKind(),
    launch.LaunchKind(),
    log.LogKind(),
)

__all__ = ["KINDS"]
