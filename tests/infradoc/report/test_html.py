"""The HTML page: self-contained, escaped, in both languages, with the plots that explain the finding."""

from __future__ import annotations

import re
from html.parser import HTMLParser
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from infradoc.catalog import load_rules
from infradoc.cli import app
from infradoc.report.diagnosis import diagnose_recording
from infradoc.report.html.page import to_html
from infradoc.report.html.svg import HEIGHT, WIDTH, short, to_svg
from infradoc.report.html.words import page_words
from infradoc.report.plots import Plot
from infradoc.report.post_mortem import diagnose_artefacts

DATA = Path(__file__).parents[2] / "data"
VOID = {"meta", "br", "hr", "line", "polyline"}
EVIL = "</title><script>alert(1)</script><img src=http://x.example/>"


class Page(HTMLParser):
    """Checks that tags are balanced; collects tags and what would be loaded from elsewhere."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.open: list[str] = []
        self.tags: list[str] = []
        self.loads: list[str] = []
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append(tag)
        self.loads += [str(value) for name, value in attrs if name in ("src", "href", "action", "onload", "onclick")]
        if tag not in VOID:
            self.open.append(tag)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append(tag)

    def handle_endtag(self, tag: str) -> None:
        if tag not in VOID:
            assert self.open.pop() == tag


@pytest.fixture(scope="module")
def sick():
    plots: list[Plot] = []
    return diagnose_recording(DATA / "recordings" / "vllm-05", load_rules(), plots=plots), plots


@pytest.mark.parametrize("lang", ["en", "zh"])
def test_a_recording_gives_a_whole_page(sick, lang: str) -> None:
    report, plots = sick
    text = to_html([report], [plots], lang)
    page = Page(text)
    assert page.open == []
    assert page.loads == []
    assert not {"script", "link", "img", "iframe"} & set(page.tags)
    assert page.tags.count("svg") == len(plots) >= 3
    say = page_words(lang)
    assert all(say[word] in text for word in ("chain", "change", "evidence_plots", "threshold", "onset"))
    assert "details" in page.tags  # the playbook


def test_the_plots_are_those_of_the_branch_that_fired(sick) -> None:
    report, plots = sick
    first = report["findings"][0]["id"]
    shown = [plot for plot in plots if plot.finding == first]
    assert "llm_kv_cache_usage_ratio" in shown[0].title
    for plot in shown:
        assert plot.threshold is not None and plot.onset is not None
        assert any(value is not None and value > plot.threshold for value in plot.values)


def test_what_comes_from_outside_is_text(sick) -> None:
    report, plots = sick
    finding = {**report["findings"][0], "title": EVIL, "cause": EVIL, "playbook": EVIL, "explains": [EVIL]}
    finding["evidence"] = [{**finding["evidence"][0], "text": EVIL, "source": EVIL}]
    dirty = {**report, "target": {"name": EVIL, "system": EVIL, "version": EVIL}, "findings": [finding]}
    page = Page(to_html([dirty], [plots]))
    assert page.open == []
    assert "script" not in page.tags and "img" not in page.tags


def test_what_turns_direction_or_steers_a_terminal_is_written_out(sick) -> None:
    report, plots = sick
    text = "a\u202eb\x1b[2Jc\x00d\ud800e"
    dirty = {**report, "target": {"name": text, "system": text, "version": text}}
    page = to_html([dirty], [plots])
    assert not set("\u202e\x1b\x00\ud800") & set(page)
    assert "a\\u202eb\\x1b[2Jc\\x00d\\ud800e" in page


@pytest.mark.parametrize("value", [float("inf"), float("-inf"), float("nan"), 1.7e308])
def test_values_without_a_place_on_paper_are_gaps(value: float) -> None:
    for threshold in (1.0, value):
        for values in ((1.0, value, 2.0), (value, value, value), (-value, 3.0, value)):
            text = to_svg(Plot("f", "t", (0.0, 1.0, 2.0), values, ">", threshold), page_words("en"))
            assert Page(text).open == []
            assert not re.search(r"nan|inf", text.replace("infradoc", ""), re.IGNORECASE)


def test_logs_are_plotted_too() -> None:
    plots: list[Plot] = []
    for folder in sorted((DATA / "cases").iterdir()):
        if folder.is_dir():
            report = diagnose_artefacts(folder, load_rules(), plots=plots)
            if plots and report["findings"]:
                break
    assert plots
    assert Page(to_html([report], [plots])).tags.count("svg") == len(plots)


def test_the_command_writes_a_page_without_the_host(tmp_path, capsys) -> None:
    log = tmp_path / "server.log"
    log.write_text(
        "INFO 11-29 10:00:00 [api_server.py:100] vLLM API server version 0.11.0\n"
        "INFO 11-29 10:00:01 [core.py:1] connecting to http://gpu-17.corp.example:8000/v1 from 10.3.4.5\n"
        "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB. GPU 0 has a total capacity of 39.39"
        " GiB of which 1.00 GiB is free. prompt: 'my secret question' http://gpu-17.corp.example:8000\n"
    )
    app.dispatch(["diagnose", str(log), "--format", "html"])
    shown = capsys.readouterr().out
    assert shown.startswith("<!doctype html>")
    assert "gpu-17" not in shown and "10.3.4.5" not in shown and "secret question" not in shown


finite = st.floats(-1e12, 1e12, allow_nan=False)


@given(
    st.lists(st.none() | finite, min_size=2, max_size=50).filter(lambda row: any(v is not None for v in row)), finite
)
def test_every_point_lies_inside(values: list[float | None], threshold: float) -> None:
    plot = Plot("x", "<b>", tuple(map(float, range(len(values)))), tuple(values), ">", threshold, 0.5)
    text = to_svg(plot, page_words("en"))
    assert Page(text).open == []
    for points in re.findall(r'points="([^"]+)"', text):
        for pair in points.split():
            x, y = map(float, pair.split(","))
            assert 0 <= x <= WIDTH and 0 <= y <= HEIGHT


@pytest.mark.parametrize(
    ("value", "text"), [(0.25, "0.25"), (3100, "3.1k"), (46e6, "46M"), (-2.5e9, "-2.5G"), (0, "0")]
)
def test_short_numbers(value: float, text: str) -> None:
    assert short(value) == text
