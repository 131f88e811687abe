# `make` alone lists the targets. Everything set-up makes lies in .venv and .cache, everything a run makes in .firn.

SHELL := /bin/bash
.SHELLFLAGS := -eu -o pipefail -c
.ONESHELL:
.DEFAULT_GOAL := help
MAKEFLAGS += --no-print-directory

CACHE := .cache
DONE := $(CACHE)/done
UV := $(CACHE)/uv/bin/uv
BIN := .venv/bin
PYTEST_ARGS ?=
# What pytest prints last is what a person and the CI read.
PYTEST := $(BIN)/python -m pytest
# Plain processes side by side, a set of folders each: more than a small machine has cores, because tests of Airflow and
# of Spark wait as long as they work. The others yield to these two, and take about the same time: they end together, so
# that no core waits. Each process has a Spark session of its own. A new folder is part of the last set.
SET_1 := tests/airflow/running
SET_2 := tests/engines $(wildcard tests/airflow/test_*.py) tests/conformance
SET_3 := tests/contract/test_contract.py tests/faults tests/refusals
SET_4 := tests/judge tests/checkout tests/rules
SET_5 := $(wildcard tests/contract/test_*.py) $(patsubst %/,%,$(wildcard tests/*/))
SET_5 := $(filter-out tests/airflow tests/contract tests/support tests/__pycache__ $(SET_2) $(SET_3) $(SET_4),$(SET_5))
SIDE_BY_SIDE := $(BIN)/python -m tests.support.processes

export PATH := $(CURDIR)/$(BIN):$(PATH)
# Foreign writers, readers and peers of tests and benchmarks; the product has no jars of its own.
FIRN_JARS ?= $(CURDIR)/$(CACHE)/jars
JARS_PATH = $(shell awk -F '[: ]' -v dir='$(FIRN_JARS)' \
	'/^[^\#]/ {printf "%s%s/%s-%s.jar", sep, dir, $$2, $$3; sep = ":"}' tests/support/jars.lock)
# The locked packages and no others: not the user's site-packages, not another project's.
export PYTHONNOUSERSITE := 1
# Where Python may not keep bytecode every process compiles what it imports, which takes seconds.
unexport PYTHONPATH PYTHONHOME VIRTUAL_ENV CONDA_PREFIX SPARK_HOME PYTHONDONTWRITEBYTECODE
# How Spark's JVM starts here. The class archive (made by set-up) and the light compiler halve the start-up of small
# jobs; a JVM that the archive does not fit ignores it, and -Xlog:disable keeps it from saying so on standard output.
# For big jobs set SPARK_SUBMIT_OPTS yourself: the light compiler (TieredStopAtLevel) is wrong for them.
# Driver and executors are one process: nothing else needs to reach it.
export SPARK_LOCAL_IP ?= 127.0.0.1
# Spark's own default of 1 GB is too little where keys of 10 MB pass through a session that did other work before:
# Spark ends the process when memory runs out.
export SPARK_DRIVER_MEMORY ?= 3g
# With the light compiler alone the JVM reserves 48 MB for compiled code; a long run fills that, and compiles no more.
export SPARK_SUBMIT_OPTS ?= -XX:SharedArchiveFile=$(CURDIR)/$(CACHE)/spark.jsa -XX:TieredStopAtLevel=1 \
	-XX:ReservedCodeCacheSize=240m -XX:+UseSerialGC -Xlog:disable

.PHONY: help
help: ## list the targets
	@awk 'BEGIN {FS = ":.*## "} /^[a-z-]+:.*## / {printf "  \033[1m%-12s\033[0m %s\n", $$1, $$2}' Makefile

.PHONY: setup
setup: preflight $(DONE)/archive ## make .venv (done once; other targets do this when needed)

# Each time, as Java may have gone since: a quarter of a second, and one line instead of Spark's dozens.
.PHONY: preflight
preflight:
	@infra/setup/preflight > /dev/null

$(DONE):
	@mkdir -p $@

$(DONE)/uv: infra/setup/uv.lock | $(DONE)
	@python=$$(infra/setup/preflight)
	echo "setup 1/3: uv, with $$python"
	rm -rf $(CACHE)/uv
	"$$python" -m venv $(CACHE)/uv
	$(CACHE)/uv/bin/python -m pip install --quiet --disable-pip-version-check --require-hashes --no-deps -r $<
	touch $@

$(DONE)/python: requirements.lock pyproject.toml $(DONE)/uv
	@echo "setup 2/3: Python packages into .venv"
	$(UV) venv --quiet --allow-existing --python $(CACHE)/uv/bin/python .venv
	$(UV) pip sync --python $(BIN)/python --require-hashes requirements.lock
	$(UV) pip install --quiet --python $(BIN)/python --no-deps --no-build-isolation --editable .
	$(BIN)/python -m compileall -q pipeline expectations infra dags tests
	touch $@

$(DONE)/archive: infra/setup/warm.py $(DONE)/python
	@echo "setup 3/3: one small Spark job, to record the classes it loads, and bytecode of what Firn imports (about half a minute)"
	$(BIN)/python -W ignore infra/setup/warm.py $(CACHE)/spark.jsa
	touch $@

# Iceberg's Spark runtime and what it needs: tests and benchmarks let it write and read the same tables.
$(DONE)/jars: tests/support/jars.lock infra/setup/jars.py $(DONE)/python
	@echo "for tests and benchmarks: fetching Iceberg's jars into $(FIRN_JARS)"
	$(BIN)/python infra/setup/jars.py $< $(FIRN_JARS)
	touch $@

# Kafka's cleaner, which tests/conformance compares with: only the tests need it.
$(DONE)/kafka-jars: tests/conformance/jars.lock infra/setup/jars.py $(DONE)/python
	@echo "for the tests: fetching Kafka's jars into $(CACHE)/kafka-jars"
	$(BIN)/python infra/setup/jars.py $< $(CACHE)/kafka-jars
	touch $@

# On the class path from the start: then it does not matter which test of a process starts Spark first.
FOREIGN := test test-nightly histories bench bench-quick conformance soak stack-test row-deletes
$(FOREIGN): private export FIRN_JARS := $(FIRN_JARS)
$(FOREIGN): private export SPARK_DIST_CLASSPATH = $(JARS_PATH)

# What only the stack needs, most of it an S3 client and an S3 server.
$(DONE)/stack-jars: infra/stack/jars.lock infra/setup/jars.py $(DONE)/python
	@echo "for the stack: fetching jars into $(CACHE)/stack-jars (190 MB)"
	$(BIN)/python infra/setup/jars.py $< $(CACHE)/stack-jars
	touch $@

.PHONY: demo
demo: setup ## compact a real changelog end to end through the Airflow DAG
	@$(BIN)/python -m infra.demo.run

.PHONY: test-setup
test-setup: setup $(DONE)/jars $(DONE)/kafka-jars $(DONE)/stack-jars ## fetch the jars that the tests need (done once; other targets do this when needed)

SETS = "$(SET_1)" "$(SET_2)" "$(SET_3)" "$(SET_4)" "$(SET_5)"
.PHONY: test
test: setup $(DONE)/jars ## run all tests that run on every change (about ten minutes)
	@$(SIDE_BY_SIDE) $(SETS) -- -m "not nightly" $(PYTEST_ARGS)

.PHONY: test-nightly
test-nightly: setup $(DONE)/jars $(DONE)/kafka-jars ## run the tests that `make test` leaves out: Kafka's cleaner, Airflow, a browser, more of Spark
	@$(SIDE_BY_SIDE) $(SETS) -- -m nightly $(PYTEST_ARGS)

NIGHTLY ?=
.PHONY: nightly
nightly: setup $(DONE)/jars $(DONE)/kafka-jars ## run a part of every net that `make test` leaves out (up to 75 minutes); NIGHTLY=all runs everything
	@$(BIN)/python -m tests.nightly $(if $(filter all,$(NIGHTLY)),--all)

EXAMPLES ?= 3000
.PHONY: fuzz
fuzz: setup ## damage plans, properties, landing files and status files in EXAMPLES=3000 ways each
	@FIRN_FUZZ_EXAMPLES=$(EXAMPLES) $(SIDE_BY_SIDE) tests/refusals/test_any_file.py tests/contract/test_log_segments.py tests/refusals/test_any_document.py -- $(PYTEST_ARGS)

HISTORIES ?= 300
.PHONY: row-deletes
row-deletes: setup $(DONE)/jars ## compare Firn with Spark's and PyIceberg's readers on HISTORIES=300 random histories of row-level deletes
	@FIRN_HISTORIES=$(HISTORIES) $(PYTEST) tests/engines/test_row_deletes.py -k every_reader_agrees $(PYTEST_ARGS)

OTHER_HISTORIES := tests/judge/test_sums.py tests/engines/test_results.py
TIMES ?= 10
.PHONY: histories
histories: setup $(DONE)/jars ## try TIMES=10 times as many random histories as `make nightly` does
	@FIRN_EXAMPLES=$(TIMES) $(SIDE_BY_SIDE) tests/nightly/histories "$(OTHER_HISTORIES)" -- $(PYTEST_ARGS)

.PHONY: pictures
pictures: setup ## take new pictures of Airflow's UI in the browser test, into docs/images
	@FIRN_PICTURES=docs/images $(PYTEST) tests/airflow/test_ui.py $(PYTEST_ARGS)

# Where Firn's tasks run in these: in the process (local), or in Spark's workers (spark).
ENGINE ?= local
WORKLOADS ?= 300
SEED ?= 1
.PHONY: conformance
conformance: setup $(DONE)/jars $(DONE)/kafka-jars ## compare Firn with Kafka's own cleaner on WORKLOADS=300 random workloads from SEED=1
	$(BIN)/python -m tests.conformance --workloads $(WORKLOADS) --seed $(SEED) --engine $(ENGINE)

.PHONY: faults
faults: setup ## take every step of Firn with every fault, at up to eight calls of each kind (half an hour)
	@$(PYTEST) tests/faults $(PYTEST_ARGS)

# Which of the flips or defects in tests/nets: 1-10, or 3,17; all where it is empty.
NUMBERS ?=
.PHONY: mutants
mutants: setup ## flip rules in the code, one at a time: the tests must notice each flip that tests/nets/mutants.toml lists as noticed
	@$(BIN)/python -m tests.nets.mistakes mutants --numbers "$(NUMBERS)"

.PHONY: defects
defects: setup ## put former defects back into the code, one at a time: each must make tests fail
	@$(BIN)/python -m tests.nets.mistakes defects --numbers "$(NUMBERS)"

SEEDS ?= 1-1000
KINDS ?=
.PHONY: trials
trials: setup ## run random histories with faults and other writers, SEEDS=1-1000 of KINDS=commit,... (five CPU seconds each); SEEDS=7 KINDS=commit replays one
	@$(BIN)/python -m tests.nightly.trials --seeds $(SEEDS) --kinds "$(KINDS)"

# Where the catalog is kept: sqlite, or postgres.
CATALOG ?= sqlite
SOAK_SECONDS ?= 1800
.PHONY: soak
soak: setup $(DONE)/jars ## run appenders, compactors, readers, other tools and faults at the same time, for SOAK_SECONDS=1800
	@$(BIN)/python -m tests.nightly.crowd.soak --seconds $(SOAK_SECONDS) --catalog $(CATALOG)

# The full compiler, a parallel collector and room for joins: what a user would give to jobs of this size. Whole
# processes of Firn start as they do everywhere else here.
BENCH := FIRN_BENCH_SUBMIT_OPTIONS="$(SPARK_SUBMIT_OPTS)" SPARK_DRIVER_MEMORY=6g \
	SPARK_SUBMIT_OPTS="-XX:+UseParallelGC -XX:ReservedCodeCacheSize=240m -Xlog:disable" \
	$(BIN)/python -W ignore::UserWarning -m infra.bench
SCALE ?= 1
QUICK := 0.25
FAMILIES ?=
.PHONY: bench
bench: setup $(DONE)/jars $(DONE)/kafka-jars ## measure FAMILIES=base,... (default: all) and peers, into docs/performance.md; BASE=COMMIT compares with that commit instead
	@$(BENCH) $(FAMILIES) --scale $(SCALE) --docs $(if $(BASE),--base $(BASE))

.PHONY: bench-quick
bench-quick: setup $(DONE)/jars $(DONE)/kafka-jars ## measure the most important benchmarks in a few minutes, into .firn/bench/report
	@$(BENCH) base,changed,processes,fixed --scale $(if $(filter file,$(origin SCALE)),$(QUICK),$(SCALE))

.PHONY: check
check: setup ## the edit loop: lint, types, the tests of the rules, and those that you changed since the last commit (a minute)
	@$(MAKE) --jobs 3 lint types check-tests

.PHONY: check-tests
check-tests: setup
	@changed=$$(git diff --name-only --diff-filter=d HEAD -- tests; git ls-files --others --exclude-standard -- tests)
	files=$$(grep -E '(^|/)test_[^/]*\.py$$' <<< "$$changed" || true)
	cases=$$(sed -nE 's|.*/([^/]+)\.case$$|\1|p' <<< "$$changed" | paste -sd' ' | sed 's/ / or /g')
	$(PYTEST) -m "not nightly" tests/rules $$files $(PYTEST_ARGS)
	[ -z "$$cases" ] || $(PYTEST) tests/contract/test_contract.py tests/refusals/test_refusals.py -m "not nightly" -k "$$cases" $(PYTEST_ARGS)

.PHONY: lint
lint: setup ## check rules and format with ruff, without changes
	@$(BIN)/ruff check .
	$(BIN)/ruff format --check .

.PHONY: format
format: setup ## fix what ruff can fix, and format
	@$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

.PHONY: types
types: setup ## check types with mypy, strict
	@$(BIN)/mypy

.PHONY: layout
layout: setup ## count folders, floors, lines, classes and functions of the code
	@$(BIN)/python -m tests.nets.layout

# An existing lock keeps its versions: delete its lines of a package, or the file, for newer ones.
.PHONY: lock
lock: $(DONE)/uv ## lock the packages that pyproject.toml asks for, and write the constraints that ship
	@$(UV) pip compile --quiet --universal --generate-hashes --extra airflow --extra spark --group dev pyproject.toml -o requirements.lock
	$(BIN)/python -m infra.setup.constraints

EXTRAS ?=
.PHONY: release-check
release-check: setup ## build the package, install it by pip and use it, with each of EXTRAS="none spark airflow airflow,spark"
	@infra/setup/release $(CURDIR)/$(BIN)/python $(EXTRAS)

# An environment of its own: the auditor's dependencies are none of Firn's.
$(DONE)/audit: infra/setup/audit.lock $(DONE)/uv
	@$(UV) venv --quiet --clear --python $(CACHE)/uv/bin/python $(CACHE)/audit
	$(UV) pip sync --quiet --python $(CACHE)/audit/bin/python --require-hashes $<
	touch $@

# Strict: a package that the database says nothing about fails the audit, or one without a network would pass.
.PHONY: audit
audit: $(DONE)/audit ## look for known vulnerabilities of the locked packages (asks PyPI's advisory database)
	@$(CACHE)/audit/bin/pip-audit --strict --disable-pip --require-hashes --progress-spinner off \
		-r requirements.lock -r infra/setup/uv.lock -r infra/setup/audit.lock || {
		echo "audit: not passed: see above which package is vulnerable, or that the advisory database did not tell"
		exit 1
	}

.PHONY: up
up: setup ## start Airflow with its UI on the demo's tables, and land records into one table
	@$(BIN)/python -m infra.airflow.local up

.PHONY: down
down: ## stop everything that `make up` started
	@test ! -x $(BIN)/python || $(BIN)/python -m infra.airflow.local down

.PHONY: stack-up
stack-up: setup $(DONE)/stack-jars ## start PostgreSQL, an S3 server, a REST catalog and a Spark cluster on this machine
	@$(BIN)/python -m infra.stack.stack up

.PHONY: stack-down
stack-down: ## stop everything that `make stack-up` started
	@test ! -x $(BIN)/python || $(BIN)/python -m infra.stack.stack down

.PHONY: stack-test
stack-test: setup $(DONE)/jars $(DONE)/stack-jars ## run the tests of the stack, on a separate stack with real catalogs, object store and cluster
	@FIRN_STACK=1 $(PYTEST) tests/stack $(PYTEST_ARGS)

.PHONY: clean
clean: down stack-down ## remove everything that set-up and runs have created
	@rm -rf .cache .venv .firn .hypothesis .ruff_cache
