# The two commands a newcomer needs are `make run` and `make test`; docs/HACKING.md explains the rest.

PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
UP ?=
BENCH ?=
CHAOS ?=
STEPS ?= 20000
# Test processes beside each other; tests/support/sharing.py says what stays together.
WORKERS ?= 2
SIDE_BY_SIDE := --numprocesses $(WORKERS) --dist loadscope --no-loadscope-reorder --max-worker-restart 0
# A test may fail once, three in all; each is shown with what it said (docs/decisions/0078).
SECOND_TRY := --max-suite-reruns 3 --rerun-show-tracebacks
# The same examples in the same order each time: what is refused is the change (docs/decisions/0084). Plain pytest explores.
SETTLED := --hypothesis-profile settled --randomly-seed 1

.DEFAULT_GOAL := help
.PHONY: help setup setup-dev run test test-native check bench native simulate chaos

help:
	@echo "make run     install what is needed and start everything; UP='--http-port 8080' passes flags on"
	@echo "make test    the whole test suite"
	@echo "make native  compile the broker's hot modules now; make run does it behind the start (needs a C compiler)"
	@echo "make check   lint, types, import walls, migrations, translations, shape"
	@echo "make bench   benchmarks of the running product; BENCH='--only start' passes flags on"
	@echo "make simulate  the log at random, or PART=cluster: brokers, network, disks, ZooKeeper, or PART=coordinators: groups and transactions on them; SEED=… and STEPS=… repeat or lengthen it"
	@echo "make chaos   brokers killed under load for five minutes; CHAOS='--verbs kill,pause --seconds 600' passes flags on"
	@echo "make setup   only install, into $(VENV)"

setup: $(VENV)/.runtime

setup-dev: $(VENV)/.dev

$(VENV)/.runtime: requirements.txt
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || \
	  { echo "Penstock needs Python 3.11 or later: make setup PYTHON=/path/to/python3.11" >&2; exit 1; }
	@test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check -r requirements.txt
	@touch $@

$(VENV)/.dev: requirements-dev.txt $(VENV)/.runtime
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check -r requirements-dev.txt
	@touch $@

run: setup
	@exec $(BIN)/python manage.py up $(UP)

test: setup-dev
	@$(BIN)/python -m pytest $(SIDE_BY_SIDE) $(SECOND_TRY) $(SETTLED) -m "not quiet and not long"
	@$(BIN)/python -m pytest $(SECOND_TRY) -m quiet tests/system

native: setup
	@$(BIN)/python -m brokers.native.build

# Rooms without a compiled module, whose tests would say the same again; and what tries crashes, not code.
NEVER_COMPILED := $(addprefix --ignore=tests/brokers/engine/,access cluster controller coordinators inspect telemetry storage/test_crash_matrix.py \
  test_group_gateway.py test_group_offsets.py) --ignore=tests/interop/test_groups.py
# The long properties draw their thousands from the plain modules.
FEWER_EXAMPLES := PENSTOCK_LOG_EXAMPLES=700 PENSTOCK_CLEANING_EXAMPLES=15

# What the compiled modules can change: the engine, quotas, and what clients see.
test-native: native
	@PENSTOCK_NATIVE=1 $(FEWER_EXAMPLES) $(BIN)/python -m pytest $(SIDE_BY_SIDE) $(SECOND_TRY) $(SETTLED) $(NEVER_COMPILED) tests/brokers/engine tests/quotas tests/differential tests/interop tests/system/test_malformed.py

check: setup-dev
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports
	$(BIN)/python manage.py check --fail-level WARNING
	PENSTOCK_PUBLIC_URL=https://check.invalid SECRET_KEY=$$($(BIN)/python -c 'import secrets; print(secrets.token_urlsafe(48))') \
	  $(BIN)/python manage.py check --deploy --fail-level WARNING
	$(BIN)/python -W ignore::RuntimeWarning manage.py makemigrations --check --dry-run
	$(BIN)/python -m pytest tests/shape -q

bench: setup-dev
	@test "$$PENSTOCK_NATIVE" = 0 || $(BIN)/python -m brokers.native.build --if-possible
	@$(BIN)/python -m benchmarks $(BENCH)

chaos: setup-dev
	@$(BIN)/python -m tests.chaos $(CHAOS)

simulate: setup-dev
	@$(BIN)/python -m tests.simulate --steps $(STEPS) $(if $(PART),--part $(PART)) $(if $(SEED),--seed $(SEED)) $(SIMULATE)
