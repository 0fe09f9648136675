# The two commands a newcomer needs are `make run` and `make test`; docs/HACKING.md explains the rest.

PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
UP ?=
BENCH ?=
CHAOS ?=
STEPS ?= 20000
# Test processes beside each other, one more than processors: most wait for brokers or clocks now and then.
# tests/testkit/sharing.py says what stays together.
WORKERS ?= 3
# Checks beside each other: they wait for nothing but processors.
CHECKS ?= 2
SIDE_BY_SIDE := --numprocesses $(WORKERS) --dist loadscope --no-loadscope-reorder --max-worker-restart 0
# A test may fail once, three in all; each is shown with what it said (docs/decisions/0078).
SECOND_TRY := --max-suite-reruns 3 --rerun-show-tracebacks
# Other examples each time, from a seed that is printed: PENSTOCK_TESTS_SEED=… repeats them (docs/decisions/0085).
export PENSTOCK_TESTS_SEED := $(or $(PENSTOCK_TESTS_SEED),$(shell date +%s))
SEEDED := --hypothesis-profile seeded --hypothesis-seed $(PENSTOCK_TESTS_SEED) --randomly-seed 1
SLOWEST := --durations 10
# What tests write lies in memory where that has room: on a disk they wait for fsync half of the time (docs/decisions/0085).
IN_MEMORY := $(shell test "$$(df -k --output=avail /dev/shm 2>/dev/null | tail -1)" -ge 8000000 2>/dev/null && echo /dev/shm)
RUN := PYTEST_DEBUG_TEMPROOT=$(IN_MEMORY) $(BIN)/python -m pytest $(SECOND_TRY) $(SEEDED) $(SLOWEST)

# What each process would compile anew is compiled once: images of Python for containers often forbid to write it down.
unexport PYTHONDONTWRITEBYTECODE

.DEFAULT_GOAL := help
.PHONY: help setup setup-dev run test test-native test-long bench check check-style check-types check-shape check-django check-walls native simulate chaos screenshots

help:
	@echo "make run     install what is needed and start everything; UP='--http-port 8080' passes flags on"
	@echo "make test    the test suite, with a part of what is random or swept, another one each day"
	@echo "make test-long  all of it, also with compiled modules (hours, on a machine with nothing else to do)"
	@echo "make native  compile the broker's hot modules now; make run does it behind the start (needs a C compiler)"
	@echo "make check   lint, types, import walls, migrations, translations, shape"
	@echo "make bench   benchmarks of the running product; BENCH='--only start' passes flags on"
	@echo "make simulate  the log at random, or PART=cluster: brokers, network, disks, ZooKeeper, or PART=coordinators: groups and transactions on them, or PART=flow: shares of bandwidth under a flow master, or PART=capacity: what instances store, or PART=scheduling: who has how much of the event loop; SEED=… and STEPS=… repeat or lengthen it"
	@echo "make chaos   brokers killed under load for five minutes; CHAOS='--verbs kill,pause --seconds 600' passes flags on"
	@echo "make screenshots  takes the pictures of README.md anew (needs Chromium)"
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

# PENSTOCK_TESTS_CHECKED=1, as .ci/run sets it: `make check` has run the tests of the tree's shape.
test: setup-dev
	@PENSTOCK_TESTS_ROTATE=1 $(RUN) $(SIDE_BY_SIDE) -m "not quiet" $(if $(PENSTOCK_TESTS_CHECKED),--ignore=tests/shape)
	@PENSTOCK_TESTS_ROTATE=1 $(RUN) -m quiet tests/product/quiet

# Everything: all examples, seeds, planted bugs and sweeps, and what compiling can change compiled as well.
test-long:
	@PENSTOCK_TESTS=long $(MAKE) test
	@PENSTOCK_TESTS=long $(MAKE) test-native

native: setup
	@$(BIN)/python -m brokers.native.build

# Rooms without a compiled module, whose tests would say the same again; and what tries crashes, not code.
NEVER_COMPILED := $(addprefix --ignore=tests/unit/brokers/engine/,access cluster controller coordinators inspect telemetry storage/test_crash_matrix.py) \
  $(addprefix --ignore=tests/component/engine/,test_coordinator_forwarding_process.py test_group_offsets.py) --ignore=tests/interop/test_groups.py
# The long properties draw their thousands from the plain modules.
FEWER_EXAMPLES := PENSTOCK_LOG_EXAMPLES=700 PENSTOCK_CLEANING_EXAMPLES=15

# What the compiled modules can change: the engine, quotas, and what clients see. A short run has the rooms of compiled modules,
# Apache Kafka's recorded answers and one pass of stock clients, and of them those that had their turn plain the day before.
NATIVE_LONG := $(NEVER_COMPILED) tests/unit/brokers/engine tests/component/engine tests/unit/quotas tests/differential tests/interop tests/product/system/test_malformed.py
NATIVE_SHORT := $(addprefix tests/unit/brokers/engine/,handlers network partitions protocol records replication storage throttling wire test_deadlines.py \
  test_page_cache.py) $(addprefix tests/component/engine/,test_replicated_topic.py test_transactions_process.py) --ignore=tests/unit/brokers/engine/storage/test_crash_matrix.py \
  tests/unit/quotas tests/differential tests/interop/test_transactions.py

test-native: native
	@PENSTOCK_TESTS_ROTATE=1 PENSTOCK_NATIVE=1 $(if $(filter long,$(PENSTOCK_TESTS)),$(FEWER_EXAMPLES)) $(RUN) $(SIDE_BY_SIDE) $(if $(filter long,$(PENSTOCK_TESTS)),$(NATIVE_LONG),$(NATIVE_SHORT))

# Beside each other, the quickest first and then the longest. One that fails stops none of the others.
check: setup-dev
	@$(MAKE) --no-print-directory --jobs $(CHECKS) --output-sync=target --keep-going $(addprefix check-,style types shape django walls)

check-style check-types check-shape check-django check-walls: setup-dev

check-types:
	$(BIN)/mypy

check-shape:
	$(BIN)/python -m pytest tests/shape -q

check-django:
	$(BIN)/python manage.py check --fail-level WARNING
	PENSTOCK_PUBLIC_URL=https://check.invalid PENSTOCK_EMAIL_HOST=check.invalid SECRET_KEY=$$($(BIN)/python -c 'import secrets; print(secrets.token_urlsafe(48))') \
	  $(BIN)/python manage.py check --deploy --fail-level WARNING
	$(BIN)/python -W ignore::RuntimeWarning manage.py makemigrations --check --dry-run

check-walls:
	$(BIN)/lint-imports

check-style:
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .

bench: setup-dev
	@test "$$PENSTOCK_NATIVE" = 0 || $(BIN)/python -m brokers.native.build --if-possible
	@$(BIN)/python -m benchmarks $(BENCH)

chaos: setup-dev
	@$(BIN)/python -m tests.chaos $(CHAOS)

simulate: setup-dev
	@$(BIN)/python -m tests.simulation --steps $(STEPS) $(if $(PART),--part $(PART)) $(if $(SEED),--seed $(SEED)) $(SIMULATE)

screenshots: setup-dev
	$(BIN)/python -m tests.product.screenshots
