# make setup   a virtual environment in .venv with exact pins, and the model (98 MB, cached)
# make demo    four troubles on a real engine: found, fixed live, verified
# make test    the default suite (under 10 minutes on 2 cores)
# make check   lint, types, import contracts, rule lint
SHELL := /bin/bash
PYTHON ?= python3
BIN := .venv/bin
STAMP := .venv/.installed

.PHONY: setup model check test slow gpu-check demo demo-control lock clean

setup: $(STAMP) model
ifneq (,$(filter setup,$(or $(MAKECMDGOALS),setup)))
	@printf '%s\n' 'Ready. What to type next:' \
	  '  make demo                                  four troubles found, fixed live and verified; under 6 minutes' \
	  '  . .venv/bin/activate                       puts infradoc on the path of this shell; then' \
	  '  infradoc diagnose http://localhost:8000    your own server' \
	  '  infradoc --help                            all commands'
endif

$(STAMP): requirements.cpu.lock pyproject.toml
	@$(PYTHON) -c 'import sys; sys.exit("infradoc needs Python 3.11 to 3.13; set PYTHON=python3.x") if not (3, 11) <= sys.version_info[:2] <= (3, 13) else None'
	test -x $(BIN)/python || $(PYTHON) -m venv .venv
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -r requirements.cpu.lock
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --no-deps --editable .
	@touch $(STAMP)

model: $(STAMP)
	$(BIN)/infradoc model get smollm2-135m

check: $(STAMP)
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports
	$(BIN)/infradoc rules lint

# In two parts: what can run side by side on two cores, then what wants the machine for itself.
DEFAULT := not gpu and not peer and not slow
test: setup
	$(BIN)/pytest -n 2 --dist loadfile -m "$(DEFAULT) and not serial"
	$(BIN)/pytest -m "$(DEFAULT) and serial"

slow: setup
	$(BIN)/pytest -m slow

# On a GPU host with torch, triton and numpy; nothing of this project needs to be installed there. Under 7 minutes.
# GPU_CHECK="--steps copy,decode --out FILE" narrows it.
gpu-check:
	PYTHONPATH=engine:kernels $(PYTHON) -m infradoc_engine.gpu_check $(GPU_CHECK)

demo: setup
	$(BIN)/infradoc demo

demo-control: setup
	$(BIN)/infradoc demo --no-fix

# The lock is for the CPU build of torch, which does not bring triton; a CUDA build pins its own.
lock:
	printf 'torch==2.13.0\ntriton==3.9.0\n' > .venv/constraints.txt
	$(BIN)/python -m pip install --quiet pip-tools
	$(BIN)/pip-compile --quiet --extra engine --extra dev --no-header --no-annotate --strip-extras --allow-unsafe --no-emit-find-links --no-emit-index-url --no-emit-trusted-host --constraint .venv/constraints.txt -o requirements.cpu.lock pyproject.toml
	sed -i -e "s/+cpu$$//" -e "1i # Exact pins that make setup installs (CPU build of torch). Made by make lock; ranges are in pyproject.toml." requirements.cpu.lock

clean:
	rm -rf .venv build dist *.egg-info .mypy_cache .ruff_cache .pytest_cache .hypothesis
