"""`serve`: open the port, load the model, run both event loops and the engine thread, and end all of it in order."""

from __future__ import annotations

import asyncio
import errno
import gc
import os
import signal
import socket
import sys
import time
from collections.abc import Callable, Sequence

from infradoc_engine.config import EngineConfig, ServerConfig, cpu_count
from infradoc_engine.engine import Engine
from infradoc_engine.faults.base import FaultError, Target
from infradoc_engine.faults.board import FaultBoard, parse_fault
from infradoc_engine.frontend import Frontend
from infradoc_engine.jobs import TokenEvent
from infradoc_engine.metrics import EngineMetrics
from infradoc_engine.server.admin import AdminRoutes
from infradoc_engine.server.app import Application, Routes
from infradoc_engine.server.appliers import make_appliers
from infradoc_engine.server.build import LoadedModel, build_engine, make_renderer
from infradoc_engine.server.collectors import ConfigCollector, EngineCollector, ProcessCollector, RunnerCollector
from infradoc_engine.server.control import ControlRoutes, ControlThread, HttpSide
from infradoc_engine.server.drain import Drainer
from infradoc_engine.server.fault_routes import FaultRoutes
from infradoc_engine.server.in_force import read_in_force
from infradoc_engine.server.live_config import LiveConfig
from infradoc_engine.server.loop_lag import LoopLag
from infradoc_engine.server.openai import OpenAIRoutes, served_model
from infradoc_engine.server.resize import Resizer
from infradoc_engine.server.token import AdminToken
from infradoc_engine.server.turns import Turns
from infradoc_engine.tokenizer_pool import TokenizeError, TokenizerPool

ENGINE_VERSION = "0.1.0"
GRACE_SECONDS = 3.0  # for requests in flight when the server is told to end
# Every thread here waits for the GIL at times; with the default of 5 ms a scrape that needs it a few times in a row,
# while the step loop and the event loop both compute, would spend most of its 50 ms waiting.
SWITCH_INTERVAL_SECONDS = 0.0005


class StartError(RuntimeError):
    """The server cannot start; one sentence."""


def log(text: str) -> None:
    """One line of narration; data never goes this way."""
    print(f"infradoc serve: {text}", file=sys.stderr, flush=True)


def open_port(config: ServerConfig) -> socket.socket:
    """A bound socket, not listening yet; StartError when the port is taken or the address is not ours."""
    family = socket.AF_INET6 if ":" in config.host else socket.AF_INET
    listener = socket.socket(family, socket.SOCK_STREAM)
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        listener.bind((config.host, config.port))
    except OSError as error:
        listener.close()
        raise _port_error(error, config) from None
    return listener


def _port_error(error: OSError, config: ServerConfig) -> StartError:
    where = f"{config.host} port {config.port}"
    if error.errno == errno.EADDRINUSE:
        return StartError(f"{where} is in use by another server; stop that one or choose another --port.")
    return StartError(f"cannot listen on {where}: {error.strerror or error}; choose another --host or --port.")


def check_faults(settings: ServerConfig) -> None:
    """StartError, before a model is loaded, for faults of the command line that cannot be switched on."""
    if settings.faults and not settings.enable_faults:
        raise StartError(f"--fault {settings.faults[0]} needs --enable-faults beside it.")
    for text in settings.faults:
        try:
            parse_fault(text)
        except FaultError as error:
            raise StartError(f"--fault {text}: {error}") from None


class Server:
    """One server from loaded model to shut-down; `run` is its whole life."""

    def __init__(self, config: EngineConfig, loaded: LoadedModel, listener: socket.socket) -> None:
        self._config = config
        self._loaded = loaded
        self._listener = listener
        self._metrics = EngineMetrics()
        self._token = AdminToken(config.server.admin_token, remote=config.server.admin_remote)
        self._control = ControlThread()
        self._stop = asyncio.Event()

    async def run(self) -> None:
        """Serve until SIGTERM or SIGINT. StartError when a part does not come up."""
        loop = asyncio.get_running_loop()
        self._loop = loop
        engine = build_engine(self._loaded, self._metrics, self._deliver, log)
        pool = TokenizerPool(self._loaded.tokenizer, log=log)
        self._drainer = Drainer(engine, self._config.server.drain_seconds, self._config.server.stall_seconds)
        resizer = Resizer(engine, self._loaded.runner, self._drainer)
        appliers = make_appliers(engine, self._loaded.runner, pool, resizer, self._drainer, loop)
        in_force = read_in_force(engine, self._loaded.runner)
        live = LiveConfig(self._loaded.knobs, self._config.origins, appliers, resizer.change, in_force)
        self._faults = FaultBoard(
            Target(engine, self._loaded.runner.device, loop), enabled=self._config.server.enable_faults
        )
        self._frontend = self._make_frontend(engine, pool, live)
        lag = LoopLag(self._metrics)
        for number in (signal.SIGTERM, signal.SIGINT):
            loop.add_signal_handler(number, self._on_signal)
        try:
            engine.start()
            self._control.start()
            lag.start()
            await self._start_workers(pool, int(live.value("tokenizer_workers") or 0))
            for text in self._config.server.faults:
                self._set_fault(text)
            side = self._open(engine, pool, live, lag)
            await self._stop.wait()
            await self._drain(side)
        finally:
            self._faults.stop_all()
            self._token.remove()
            self._listener.close()
            await asyncio.to_thread(self._control.stop)
            await asyncio.to_thread(engine.stop)
            await pool.close()
            lag.stop()

    def _set_fault(self, text: str) -> None:
        name, parameters = parse_fault(text)
        try:
            self._faults.set(name, True, parameters)
        except FaultError as error:
            raise StartError(f"--fault {text}: {error}") from None

    def _make_frontend(self, engine: Engine, pool: TokenizerPool, live: LiveConfig) -> Frontend:
        model = self._loaded.files.config
        return Frontend(
            engine,
            pool,
            decode=self._loaded.tokenizer.decode,
            vocab_size=model.vocab_size,
            eos_token_ids=frozenset(model.eos_token_ids),
            limits=live,
            metrics=self._metrics,
        )

    def _deliver(self, events: Sequence[TokenEvent]) -> None:
        """From the engine thread: one hand-over to the event loop for everything a step produced."""
        if events and not self._loop.is_closed():
            self._loop.call_soon_threadsafe(self._frontend.deliver, events)

    async def _start_workers(self, pool: TokenizerPool, workers: int) -> None:
        if workers:
            try:
                await pool.resize(workers)
            except TokenizeError as error:
                raise StartError(f"{error}; try fewer --tokenizer-workers.") from None

    def _open(self, engine: Engine, pool: TokenizerPool, live: LiveConfig, lag: LoopLag) -> HttpSide:
        """Make the routes known to both loops, listen, and say so."""
        settings = self._config.server

        def trouble() -> str | None:
            return engine.trouble(settings.stall_seconds) or lag.trouble(settings.stall_seconds)

        self._add_collectors(engine, pool, live, trouble)
        control = ControlRoutes(self._metrics, trouble, lambda: engine.draining)
        admin = AdminRoutes(
            self._frontend,
            live,
            self._token,
            version=ENGINE_VERSION,
            hints=self._hints,
            turns=Turns(self._control.loop),
            drainer=self._drainer,
        )
        faults = FaultRoutes(self._faults, self._token)
        openai = OpenAIRoutes(
            self._frontend, served_model(self._loaded.name, make_renderer(self._loaded)), settings.max_body_bytes
        )
        application = Application(make_routes(openai, control, admin, faults), self._metrics, log, debug=settings.debug)
        side = HttpSide(application, self._loop)
        try:
            self._listener.listen(1024)
        except OSError as error:
            raise _port_error(error, settings) from None
        self._listener.setblocking(False)
        host, port = self._listener.getsockname()[:2]
        try:
            self._token.write(settings.runtime_dir, port)
        except OSError as error:
            raise StartError(
                f"cannot write the admin token to {settings.runtime_dir}: {error.strerror}; "
                "set INFRADOC_RUNTIME_DIR or INFRADOC_ADMIN_TOKEN."
            ) from None

        def to_main(connection: socket.socket) -> None:
            self._loop.call_soon_threadsafe(side.take, connection)

        self._control.listen(self._listener, application, to_main)
        shown = f"[{host}]" if ":" in host else host
        tokens = live.value("kv_pool_tokens")
        where = f"http://{shown}:{port}"
        log(f"ready on {where} (model {self._loaded.name}, KV pool {tokens} tokens); /metrics; Ctrl-C ends it")
        threads = self._loaded.knobs["omp_num_threads"]
        if isinstance(threads, int) and threads > 1 and threads >= cpu_count():
            log(f"{threads} compute threads take every core: beside other busy programs --omp-num-threads 1 is faster")
        return side

    def _add_collectors(
        self, engine: Engine, pool: TokenizerPool, live: LiveConfig, trouble: Callable[[], str | None]
    ) -> None:
        runner = self._loaded.runner
        self._metrics.add_collector(EngineCollector(engine, runner.memory_account, trouble))
        self._metrics.add_collector(RunnerCollector(engine, runner))
        dtype = str(runner.dtype).removeprefix("torch.")
        quantization = self._loaded.files.config.quantization
        self._metrics.add_collector(
            ConfigCollector(live, engine, model=self._loaded.name, dtype=dtype, quantization=quantization)
        )
        self._metrics.add_collector(ProcessCollector(pool))

    def _hints(self) -> dict[str, object]:
        runner = self._loaded.runner
        return {
            "kv_bytes_per_token": runner.kv_bytes_per_token(),
            "free_memory_bytes": max(0, runner.free_bytes()),
            "cores": cpu_count(),
            "torch_threads": self._loaded.knobs["omp_num_threads"],
            "block_size": runner.block_size,
            "activation_bytes": runner.budget.step_need(),
            "weight_bytes": runner.budget.weight_bytes,
            "device_memory_bytes": runner.device_bytes,
            "host_swap_bytes": runner.budget.host_bytes,
        }

    def _on_signal(self) -> None:
        if self._stop.is_set():  # asked twice: the user does not want to wait
            self._token.remove()
            os._exit(130)
        self._stop.set()

    async def _drain(self, side: HttpSide) -> None:
        """Take nothing new, give what runs a few seconds, then abort the rest with an error."""
        log("shutting down")
        self._control.stop_accepting()
        self._frontend.draining = True
        side.close_idle()
        deadline = time.monotonic() + GRACE_SECONDS
        while side.busy and time.monotonic() < deadline:
            await asyncio.sleep(0.02)
        self._frontend.abort_all("The server is shutting down.")
        deadline = time.monotonic() + 1.0
        while side.busy and time.monotonic() < deadline:
            await asyncio.sleep(0.02)


def make_routes(openai: OpenAIRoutes, control: ControlRoutes, admin: AdminRoutes, faults: FaultRoutes) -> Routes:
    """Every path of the server; both loops answer all of them."""
    return {
        "/v1/completions": {"POST": openai.completions},
        "/v1/chat/completions": {"POST": openai.chat},
        "/v1/models": {"GET": openai.models},
        "/tokenize": {"POST": openai.tokenize},
        "/health": {"GET": control.health},
        "/metrics": {"GET": control.metrics},
        "/admin/config": {"GET": admin.config, "PATCH": admin.patch_config},
        "/admin/blocks": {"GET": admin.blocks},
        "/admin/requests": {"GET": admin.requests},
        "/admin/drain": {"POST": admin.drain},
        "/admin/defragment": {"POST": admin.defragment},
        "/admin/faults": {"GET": faults.show, "POST": faults.switch},
    }


def serve(config: EngineConfig, loaded: LoadedModel, listener: socket.socket) -> None:
    """Run until told to end. StartError when a part does not come up."""
    sys.setswitchinterval(SWITCH_INTERVAL_SECONDS)
    # Modules, tokenizer and weights stay for life: collections need not walk them again and again.
    gc.collect()
    gc.freeze()

    async def main() -> None:
        await Server(config, loaded, listener).run()

    asyncio.run(main())
