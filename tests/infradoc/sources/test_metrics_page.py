"""Every way a metrics page can be wrong, against a real server: one clear sentence, and no traceback."""

from __future__ import annotations

import gzip
import time
from http.server import BaseHTTPRequestHandler
from pathlib import Path
from typing import Any

import pytest

from infradoc.config import Auth
from infradoc.model import Reading
from infradoc.sources import fetch, mapping
from infradoc.sources.mapping import PageMapper
from infradoc.sources.metrics_page import MetricsPageSource, candidates

NODE_EXPORTER = b'# TYPE node_load1 gauge\nnode_load1 0.5\nnode_cpu_seconds_total{cpu="0"} 1\n'


def read(url: str, auth: Auth | None = None) -> Reading:
    source = MetricsPageSource(url, auth)
    try:
        return source.read(100.0)
    finally:
        source.close()


def one_sentence(error: str | None, *parts: str) -> None:
    assert error is not None
    assert "Traceback" not in error and "\n" not in error and len(error) < 400
    for part in parts:
        assert part in error, error


def test_reads_a_real_page(server: Any, vllm_page: bytes) -> None:
    server.page("/metrics", vllm_page)
    server.page("/version", b'{"version": "0.32.0"}', kind="application/json")
    source = MetricsPageSource(server.url)
    reading = source.read(100.0)
    source.close()
    assert reading.error is None
    assert source.system == "vllm"
    names = {sample.name for sample in reading.samples}
    assert {"llm_requests_running", "llm_kv_cache_usage_ratio", "llm_time_to_first_token_seconds_bucket"} <= names
    assert all(sample.time == 100.0 for sample in reading.samples)
    facts = {fact.name: fact.value for fact in reading.facts}
    assert facts["target.system"] == "vllm" and facts["target.version"] == "0.32.0" and facts["block_size"] == 128


@pytest.mark.parametrize("suffix", ["", "/", "/metrics", "/metrics/", "/v1", "/v1/", "/dashboard/metrics"])
def test_finds_the_page_from_any_reasonable_url(server: Any, vllm_page: bytes, suffix: str) -> None:
    server.page("/metrics", vllm_page)
    assert read(server.url + suffix).error is None


def test_candidates_prefer_what_was_typed() -> None:
    assert candidates("http://h:1/prometheus/metrics") == ["http://h:1/prometheus/metrics", "http://h:1/metrics"]
    assert candidates("http://h:1") == ["http://h:1/metrics"]
    assert candidates("http://h:1/api?x=1") == ["http://h:1/api/metrics", "http://h:1/metrics"]


def test_refused(closed_port: int) -> None:
    one_sentence(read(f"http://127.0.0.1:{closed_port}").error, f"127.0.0.1:{closed_port}", "refuses")


def test_unknown_host() -> None:
    one_sentence(read("http://no-such-host.invalid:8000").error, "no-such-host.invalid", "not known")


def test_slow_server(server: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(fetch, "READ_SECONDS", 0.2)
    server.routes["/metrics"] = lambda request: time.sleep(1.0)
    one_sentence(read(server.url).error, "did not answer within 0.2 s")


def test_dripping_server(server: Any) -> None:
    def drip(request: BaseHTTPRequestHandler) -> None:
        request.send_response(200)
        request.send_header("Content-Length", "100000")
        request.end_headers()
        try:
            for _ in range(200):
                request.wfile.write(b"a 1\n")
                request.wfile.flush()
                time.sleep(0.02)
        except OSError:
            return

    server.routes["/metrics"] = drip
    fetcher = fetch.Fetcher(server.url, Auth(), total_seconds=0.2)
    with pytest.raises(fetch.FetchError, match="did not finish within"):
        fetcher.get(f"{server.url}/metrics")
    fetcher.close()


@pytest.mark.parametrize("status", [401, 403])
def test_wants_credentials(server: Any, status: int) -> None:
    server.page("/metrics", b"no", status=status)
    one_sentence(read(server.url).error, str(status), "credentials", "api_key_env")


def test_no_such_page(server: Any) -> None:
    one_sentence(read(server.url).error, "404", "--metrics")


@pytest.mark.parametrize("status", [302, 500, 501, 503])
def test_other_statuses(server: Any, status: int) -> None:
    server.page("/metrics", b"", status=status)
    one_sentence(read(server.url).error, str(status))


HTML = b"<!DOCTYPE html><html><body>Grafana</body></html>"


@pytest.mark.parametrize(
    ("body", "kind", "word"),
    [
        (HTML, "text/html", "HTML"),
        (b"\n  " + HTML, "text/plain", "HTML"),
        (b'{"a": 1}', "application/json", "JSON"),
        (b"", "text/plain", "empty"),
        (b"hello world\nthis is no page\n", "text/plain", "no Prometheus metrics page"),
        (b"\x00\x01\x02" * 1000, "application/octet-stream", "no Prometheus metrics page"),
        (NODE_EXPORTER, "text/plain", "another system (node_load1"),
        (b"# HELP x y\n# TYPE x gauge\n", "text/plain", "no metrics"),
    ],
)
def test_not_a_page_of_an_llm_server(server: Any, body: bytes, kind: str, word: str) -> None:
    server.page("/metrics", body, kind=kind)
    one_sentence(read(server.url).error, word)


def test_metrics_of_the_engine_switched_off(server: Any, vllm_page: bytes) -> None:
    lines = [line for line in vllm_page.split(b"\n") if not line.startswith(b"vllm:")]
    server.page("/metrics", b"\n".join(lines))
    one_sentence(read(server.url).error, "another system")


def test_server_dies_in_the_middle_of_an_announced_body(server: Any, vllm_page: bytes) -> None:
    def die(request: BaseHTTPRequestHandler) -> None:
        request.send_response(200)
        request.send_header("Content-Length", str(len(vllm_page)))
        request.end_headers()
        request.wfile.write(vllm_page[:1000])
        request.close_connection = True

    server.routes["/metrics"] = die
    one_sentence(read(server.url).error, "broke off")


def test_server_dies_in_a_body_of_unknown_length(server: Any, vllm_page: bytes) -> None:
    cut = vllm_page.index(b"vllm:num_requests_waiting{") + 30

    def die(request: BaseHTTPRequestHandler) -> None:
        request.send_response(200)
        request.send_header("Connection", "close")
        request.end_headers()
        request.wfile.write(vllm_page[:cut])
        request.close_connection = True

    server.routes["/metrics"] = die
    one_sentence(read(server.url).error, "middle of a line")


def test_huge_page(server: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(fetch, "MAX_BODY_BYTES", 1 << 20)
    monkeypatch.setattr(fetch.Fetcher.get, "__kwdefaults__", {"token": None, "max_bytes": 1 << 20})
    server.page("/metrics", b"vllm:x 1\n" * 200_000)
    one_sentence(read(server.url).error, "more than 1 MiB")


def test_compressed_although_not_asked_for(server: Any, vllm_page: bytes) -> None:
    def answer(request: BaseHTTPRequestHandler) -> None:
        data = gzip.compress(vllm_page)
        request.send_response(200)
        request.send_header("Content-Encoding", "gzip")
        request.send_header("Content-Length", str(len(data)))
        request.end_headers()
        request.wfile.write(data)

    server.routes["/metrics"] = answer
    assert read(server.url).error is None


def test_untrusted_certificate(tls_server: Any, vllm_page: bytes) -> None:
    tls_server.page("/metrics", vllm_page)
    one_sentence(read(tls_server.url).error, "certificate", "ca_file")


def test_trusted_certificate(tls_server: Any, vllm_page: bytes, tls_files: tuple[Path, Path]) -> None:
    tls_server.page("/metrics", vllm_page)
    assert read(tls_server.url, Auth(ca_file=str(tls_files[0]))).error is None


def test_https_to_a_plain_port(server: Any, vllm_page: bytes) -> None:
    server.page("/metrics", vllm_page)
    one_sentence(read(server.url.replace("http:", "https:")).error, f"Use {server.url}/metrics")


def test_http_to_a_tls_port(tls_server: Any) -> None:
    one_sentence(read(tls_server.url.replace("https:", "http:")).error, f"Use {tls_server.url}/metrics")


def test_unusable_ca_file(tmp_path: Path) -> None:
    bad = tmp_path / "ca.pem"
    bad.write_text("no certificate")
    with pytest.raises(fetch.FetchError, match=r"ca\.pem"):
        MetricsPageSource("https://127.0.0.1:1", Auth(ca_file=str(bad)))


def test_credentials_are_sent_and_never_shown(server: Any, vllm_page: bytes, monkeypatch: pytest.MonkeyPatch) -> None:
    server.page("/metrics", vllm_page)
    monkeypatch.setenv("MY_KEY", "s3cret")
    assert read(server.url, Auth(api_key_env="MY_KEY")).error is None
    assert server.requests[-1][1]["Authorization"] == "Bearer s3cret"
    server.page("/metrics", b"", status=401)
    one_sentence(read(server.url, Auth(api_key_env="MY_KEY")).error, "401")
    assert "s3cret" not in str(read(server.url, Auth(api_key_env="MY_KEY")).error)


@pytest.mark.parametrize("secret", ["s3cret\nsecond line", "s3cr\u00e9t", "s3cret\x01"])
def test_secret_that_no_header_takes_is_refused_without_being_shown(
    server: Any, vllm_page: bytes, monkeypatch: pytest.MonkeyPatch, secret: str
) -> None:
    server.page("/metrics", vllm_page)
    monkeypatch.setenv("KEY", secret)
    error = MetricsPageSource(server.url, Auth(api_key_env="KEY")).read(1.0).error
    assert error is not None and "variable KEY" in error and "s3cr" not in error and "second" not in error
    assert server.requests == []


def test_basic_credentials(server: Any, vllm_page: bytes, tmp_path: Path) -> None:
    server.page("/metrics", vllm_page)
    secret = tmp_path / "pw"
    secret.write_text("pw\n")
    assert read(server.url, Auth(basic_user="u", basic_password_file=str(secret))).error is None
    assert server.requests[-1][1]["Authorization"] == "Basic dTpwdw=="


def test_missing_secret(server: Any, vllm_page: bytes, monkeypatch: pytest.MonkeyPatch) -> None:
    server.page("/metrics", vllm_page)
    monkeypatch.delenv("MY_KEY", raising=False)
    one_sentence(read(server.url, Auth(api_key_env="MY_KEY")).error, "MY_KEY", "not set")
    assert server.requests == []


def test_garbage_lines_are_counted_and_the_rest_is_used(server: Any, vllm_page: bytes) -> None:
    server.page("/metrics", vllm_page + b"%%% garbage\nvllm:num_requests_running{ 1\n")
    source = MetricsPageSource(server.url)
    assert source.read(1.0).error is None
    assert source.unparsed_lines == 2
    source.close()


def test_recovers_after_a_failure(server: Any, vllm_page: bytes) -> None:
    state = {"up": True}

    def answer(request: BaseHTTPRequestHandler) -> None:
        if not state["up"]:
            request.close_connection = True
            return
        request.send_response(200)
        request.send_header("Content-Length", str(len(vllm_page)))
        request.end_headers()
        request.wfile.write(vllm_page)

    server.routes["/metrics"] = answer
    source = MetricsPageSource(server.url)
    assert source.read(1.0).error is None
    state["up"] = False
    one_sentence(source.read(2.0).error, "broke off")
    state["up"] = True
    assert source.read(3.0).error is None
    source.close()


def test_series_that_change_at_every_look_do_not_pile_up(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(mapping, "MAX_KNOWN_SERIES", 100)
    mapper = PageMapper("vllm")
    for look in range(50):
        labels = [f'engine="{look}-{place}",model_name="m"' for place in range(20)]
        page = "".join(f"vllm:num_requests_running{{{text}}} {look}\n" for text in labels)
        found = mapper.page(page.encode(), float(look))
        assert [sample.value for sample in found.samples] == [look] * 20
        assert len(mapper._slots) == len(mapper._by_series) <= 120


def test_series_that_fall_together(server: Any) -> None:
    """Two labels that the map drops are summed; an old and a new spelling of one counter are counted once."""
    page = (
        b'vllm:num_requests_running{engine="0",model_name="m"} 2\n'
        b'http_requests_total{handler="/v1",method="GET",status="2xx"} 3\n'
        b'http_requests_total{handler="/v1",method="POST",status="2xx"} 4\n'
        b'vllm:prefix_cache_queries_total{engine="0",model_name="m"} 5\n'
        b'vllm:gpu_prefix_cache_queries_total{engine="0",model_name="m"} 5\n'
        b'vllm:kv_cache_usage_perc{engine="0",model_name="m"} 0.5\n'
        b'vllm:gpu_cache_usage_perc{engine="0",model_name="m"} 0.5\n'
    )
    server.page("/metrics", page)
    values: dict[str, float] = {}
    for sample in read(server.url).samples:
        values[sample.name] = values.get(sample.name, 0.0) + sample.value
    assert values["llm_http_requests_total"] == 7
    assert values["llm_prefix_cache_queried_tokens_total"] == 5
    assert values["llm_kv_cache_usage_ratio"] == 0.5
