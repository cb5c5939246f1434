# `make setup` installs into .venv all that a fresh machine needs beyond git, make and Python 3.11+.
PYTHON ?= python3
BIN := .venv/bin
UV_VERSION := 0.13.8
STAMP := .venv/.installed-$(shell cat requirements.lock pyproject.toml | cksum | tr ' ' -)
# The tests start some hundred Pythons. Without cached byte code, each start takes twice as long.
unexport PYTHONDONTWRITEBYTECODE

.PHONY: help setup demo test long check .check-here .check-darwin .check-win32 docs format sim soak network fuzz fuzz-broker mutants bench interop-baseline lock clean

help:  ## This list.
	@grep -E '^[a-z-]+:.*## ' $(MAKEFILE_LIST) | sed 's/:.*## /\t/' | expand -t 20

setup: $(STAMP)  ## Install everything into .venv.

$(STAMP): requirements.lock pyproject.toml
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || { echo "roquet needs Python 3.11 or later; try: make PYTHON=python3.11 $(MAKECMDGOALS)"; exit 1; }
	test -x $(BIN)/uv || { $(PYTHON) -m venv --clear .venv && $(BIN)/python -m pip install --quiet uv==$(UV_VERSION); }
	$(BIN)/uv pip install --quiet --python $(BIN)/python --require-hashes -r requirements.lock
	$(BIN)/uv pip install --quiet --python $(BIN)/python --no-deps -e .
	rm -f .venv/.installed-* && touch $@

demo: setup  ## The main job: a replicated cluster, a killed master, a Spark pipeline, on real data.
	$(BIN)/python -m demo

# One worker more than there are cores, because most tests wait for other processes at times. Files run in their order,
# which ends with quick ones; pytest-xdist's own order, by number of tests, would begin the slowest files last.
WORKERS ?= $(shell $(PYTHON) -c "import os; print(min(4, (os.cpu_count() or 1) + 1))")
PYTEST := $(BIN)/python -m pytest -n $(WORKERS) --dist loadfile --no-loadscope-reorder
test: setup  ## All tests but the long ones: unit, property, simulation, real processes, interop.
	$(PYTEST) -m "not long"

# Delta's connector does not support the newest PySpark, so it has an environment and a PySpark of its own. Its jars come
# from Maven.
DELTA := .delta
DELTA_VERSION := 4.4.0
DELTA_STAMP := $(DELTA)/.installed-$(DELTA_VERSION)
long: setup $(DELTA_STAMP)  ## The other tests, which take long: kills in Spark jobs, pipelines, Delta, ten minutes of hostile clients.
	$(PYTEST) -m long --ignore tests/spark/delta
	$(BIN)/python -m pytest -s tests/fuzz/broker --fuzz-seconds 600
	$(DELTA)/bin/python -m pytest tests/spark/delta

$(DELTA_STAMP): pyproject.toml | setup
	$(BIN)/uv venv --quiet --clear --python $(BIN)/python $(DELTA)
	$(BIN)/uv pip install --quiet --python $(DELTA)/bin/python --group dev -e '.[broker,spark]' delta-spark==$(DELTA_VERSION)
	touch $@

check: .check-here .check-darwin .check-win32  ## Format, lint, and types: on this system, and as on macOS and Windows.

.check-here: setup
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy

.check-darwin .check-win32: .check-%: setup
	$(BIN)/mypy --platform $* --cache-dir .mypy_cache/$* src

docs: setup  ## The documentation as a site, build/docs/index.html; a link that leads nowhere is an error.
	rm -rf build/docs
	$(BIN)/python -m sphinx --quiet --fail-on-warning --keep-going --jobs auto --fresh-env \
		--conf-dir docs/site --doctree-dir build/doctrees . build/docs

format: setup  ## Rewrite the sources in the project's format.
	$(BIN)/ruff format .
	$(BIN)/ruff check --fix .

SEEDS ?= 1000
SECONDS ?= 60
JOBS ?= $(shell nproc)
sim: setup  ## A whole cluster, and a store, on virtual time and drives: SEEDS=n long histories, on all cores.
	@$(MAKE) --no-print-directory --output-sync -j$(JOBS) $(addprefix .sim-,$(shell seq $(JOBS)))

.sim-%:
	$(BIN)/python -m pytest -q tests/simulation tests/properties --part $*/$(JOBS) \
		--histories $(SEEDS) --seeds $$(( $(SEEDS) / 1000 + 1 ))

KILLS ?= 40
HANDS ?= 20
MINUTES ?= 30
SEED ?=
soak: setup  ## MINUTES of mixed load, and of stalled consumers, KILLS kills of a loaded broker, a store that changes brokers HANDS times, killed Spark jobs; SEED=n repeats a run.
	$(BIN)/python -m pytest -s tests/soak --kills $(KILLS) --hands $(HANDS) --minutes $(MINUTES) \
		--report bench/SOAK.md $(if $(SEED),--soak-seed $(SEED))

ROUNDS ?= 20
network: setup  ## Master and slave on a real network, cut, slow, lossy, killed ROUNDS times; SEED=n repeats a run. Root, Linux.
	$(BIN)/python -m pytest -s tests/network --rounds $(ROUNDS) --kill-seed $(or $(SEED),$(shell date +%s))

interop-baseline: setup  ## The interop scenarios against Apache's own 4.9.7 broker: are their expectations right?
	$(BIN)/python -m pytest tests/interop/test_baseline.py tests/interop/test_scenarios.py --baseline

fuzz: setup  ## Coverage-guided fuzzing of TARGET=name or every decoder, SECONDS=n each. Linux.
	$(BIN)/uv pip install --quiet --python $(BIN)/python atheris==3.0.0
	$(BIN)/python -m tests.fuzz $(TARGET) --seconds $(SECONDS)

fuzz-broker: setup  ## Hostile clients against a master and its slave, which are killed, for SECONDS=n from SEED=n on; Linux.
	$(BIN)/python -m pytest -s tests/fuzz/broker --fuzz-seconds $(SECONDS) --fuzz-seed $(or $(SEED),1) --answered-within-ms 100

mutants: setup  ## Small faults put into the source, one at a time: does a test notice each? WORDS=... for some of them.
	$(BIN)/python -m tests.mutants $(WORDS)

bench: setup  ## Apache's benchmark programs against ours and Apache's broker.
	$(BIN)/python -m bench

lock: setup  ## Pin the newest versions of everything.
	$(BIN)/uv pip compile --quiet --universal --python-version 3.11 --all-extras --group dev --group demo --group docs \
		--generate-hashes --no-header --no-emit-index-url --no-annotate --upgrade pyproject.toml -o requirements.lock

clean:  ## Remove what was made here.
	rm -rf .venv .delta .interop .pytest_cache .mypy_cache .ruff_cache .hypothesis bench/out build demo-out
