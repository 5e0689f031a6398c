# cleanerd: everything a developer or CI does. `make help` lists it.
SHELL := /bin/bash
.DELETE_ON_ERROR:
.DEFAULT_GOAL := help

VENV := .venv
BIN := $(VENV)/bin
PYTHON ?= python3
KAFKA_LIBS ?= .cache/kafka
export KAFKA_LIBS
# Without its byte code every process that a test starts compiles cleanerd again, and each of pytest's all tests.
unexport PYTHONDONTWRITEBYTECODE
KERNEL_SOURCES := $(shell find kernel -name '*.rs' -not -path '*/target/*' 2>/dev/null) Cargo.toml Cargo.lock $(wildcard kernel/*/Cargo.toml) kernel/Cargo.toml

# What a broker's JVM loads, and what the wheel ships (pyproject.toml).
AGENT := cleanerd/agent/cleanerd-agent.jar

.PHONY: help compatibility setup demo test test-all mutants check bench profile profile-cores bench-spark bench-verbs soak torture fuzz format clean wheel deb docs screenshots

help: ## this list
	@grep -hE '^[a-z-]+:.*##' $(MAKEFILE_LIST) | awk -F':.*## ' '{printf "  %-18s %s\n", $$1, $$2}'

# ---- set-up: each step once, and for a command only the steps that it needs ---------------------------------------------

setup: $(VENV)/.kernel $(VENV)/.dev $(VENV)/.spark $(AGENT) .cache/kafka/.fetched ## everything from a clean clone: tools, .venv, kernel, Kafka's jars

.cache/.tools: tools/install-tools.sh
	@mkdir -p .cache
	bash tools/install-tools.sh
	@touch $@

.cache/.test-tools: tools/install-test-tools.sh
	@mkdir -p .cache
	bash tools/install-test-tools.sh
	@touch $@

PIP = $(BIN)/python tools/requirements.py $(1) | $(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt -r /dev/stdin

$(VENV)/.core: constraints.txt pyproject.toml .cache/.tools
	test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	$(call PIP,core)
	@touch $@

$(VENV)/.dev: $(VENV)/.core
	$(call PIP,dev)
	@touch $@

$(VENV)/.spark: $(VENV)/.core | $(VENV)/.dev
	$(call PIP,spark tables values)
	@touch $@

$(VENV)/.kernel: $(VENV)/.core $(KERNEL_SOURCES)
	PIP_QUIET=1 PIP_DISABLE_PIP_VERSION_CHECK=1 VIRTUAL_ENV=$(abspath $(VENV)) $(BIN)/maturin develop --quiet --release --locked
	@touch $@

$(AGENT): agent/build.sh $(shell find agent/src agent/unix agent/stub -name '*.java') .cache/.tools
	bash agent/build.sh $@

# What the demonstration starts: the jars of the newest release that the tests know, and its class archive.
.cache/kafka/.jars: .cache/.tools tests/kafka/pom.xml tests/kafka/fetch.sh
	@mkdir -p $(@D)
	bash tests/kafka/fetch.sh --jars 4.3 >$@.new
	@mv $@.new $@

.cache/kafka/.demo: .cache/kafka/.jars $(VENV)/.kernel
	cut -d ' ' -f 3 $< | xargs $(BIN)/python -m cleanerd_lab.demo.class_archive
	@touch $@

.cache/kafka/.fetched: .cache/kafka/.demo $(wildcard tests/kafka/java*/*.java tests/kafka/sed/*.sed)
	bash tests/kafka/fetch.sh >$@.new
	cut -d ' ' -f 3 $@.new | xargs $(BIN)/python -m cleanerd_lab.demo.class_archive
	@mv $@.new $@

# ---- the main job -----------------------------------------------------------------------------------------------------

.PHONY: demo-setup
demo-setup: $(VENV)/.kernel $(AGENT) .cache/kafka/.demo

demo: ## real brokers, real traffic: the daemon under load, then the offline path; sets up what it needs
	@$(MAKE) --no-print-directory --jobs 2 demo-setup
	$(BIN)/cleanerd demo

# ---- tests: CONTRIBUTING.md has what each command proves, needs and takes --------------------------------------------

# Most tests wait for a broker or a disk most of the time. A file's tests share what they start.
BESIDE := -n 5 --dist loadfile
# How many times as many histories, states and kills `test-all` plays.
LENGTH ?= 1
export LENGTH
# Histories and examples that no run has tried; without it every run plays the same ones.
DRAWN := --hypothesis-profile drawn

# What `test-unit` runs: directories of tests, less the tests that need or take something.
UNIT := $(filter-out __pycache__ agent bench brokers demo differential kafka live soak spark support torture,$(notdir $(wildcard tests/*)))
NEEDS_NOTHING := not (slow or long or bench or kafka or broker or browser)

.PHONY: test-setup test-unit test-one test-rest
test-setup: setup .cache/.test-tools

test: test-setup ## before every commit: every part of the product, with real brokers, Kafka's Cleaner and Spark
	cargo test --quiet --release -p cleanerd-kernel
	$(BIN)/python -m pytest $(BESIDE) -m "not long and not bench"

test-unit: $(VENV)/.kernel $(VENV)/.dev ## while you write: no JVM, no broker, no Spark; a minute
	PATH="$(CURDIR)/tests/support/no_java:$$PATH" $(BIN)/python -m pytest -q -n 4 --dist loadfile -m "$(NEEDS_NOTHING)" $(addprefix tests/,$(filter-out %.py,$(UNIT)))

test-one: test-setup ## one package's tests with what they need, e.g. P=cleaner
	$(BIN)/python -m pytest $(BESIDE) -m "not long and not bench" tests/$(or $(P),$(error name a package: make test-one P=cleaner))

test-all: test $(VENV)/.release ## every test, drawn cases included; LENGTH=5 plays five times as many
	$(BIN)/python -m tests.support.rest

test-rest: test-setup $(VENV)/.release ## what `make test` leaves out, for REST_MINUTES (40); a case that fails runs once more, alone
	$(BIN)/python -m tests.support.rest --minutes $(or $(REST_MINUTES),40)

bench: setup ## speed against Kafka's own cleaner and cp, in one run; a 4 GiB log outside of the page cache
	$(BIN)/python -m pytest -q -s tests/bench -m "bench" -o addopts=
	$(BIN)/python -m tests.bench.cold

# A kernel of its own that keeps its symbols, so that perf can name functions.
profile: setup ## where the CPU goes, ns a record by phase and function, beside Kafka's cleaner thread; PROFILE_SHAPES=a80,single
	CARGO_PROFILE_RELEASE_STRIP=false cargo build --quiet --release --locked -p cleanerd-kernel-python --target-dir .cache/profile
	PROFILE_KERNEL=.cache/profile/release/lib_kernel.so $(BIN)/python -m tests.bench.profile

profile-cores: setup ## what 2 to 32 cores would do, simulated from the time that holds Python's lock; PROFILE_SHAPES=a80,single
	CARGO_PROFILE_RELEASE_STRIP=false cargo build --quiet --release --locked -p cleanerd-kernel-python --target-dir .cache/profile
	PROFILE_KERNEL=.cache/profile/release/lib_kernel.so $(BIN)/python -m tests.bench.cores

bench-spark: setup ## a clean by Spark beside the local engine: BENCH_SPARK_GIB=0.5,1,2,4 BENCH_SPARK_CORES=1,2
	$(BIN)/python -m tests.spark.bench

bench-verbs: setup ## CPU seconds of Spark's verbs, cold and warm: BENCH_VERBS_MB=2.2,200 BENCH_VERBS=audit,...
	$(BIN)/python -m tests.spark.bench_verbs

.PHONY: bench-kafka-source
bench-kafka-source: setup ## the source kafka-segments beside Spark's kafka source, same topic, same session; BENCH_KAFKA_SOURCE_MIB=256
	$(BIN)/python -m tests.bench.spark_kafka.run

soak: setup ## the daemon beside a loaded broker for SOAK_MINUTES (15): does memory, or anything else of it, grow?
	$(BIN)/python -m tests.soak.run

torture: setup ## system calls that fail, crashes, power cuts, histories, hostile bytes, for TORTURE_MINUTES (10); TORTURE_SEED goes on
	$(BIN)/python -m tests.torture.run

.PHONY: torture-readers
READERS_COUNT ?= 1000000
READERS_PROCESSES ?= 2
torture-readers: setup ## hostile bytes led by coverage for each reader in Python, READERS_COUNT (1000000) in all: goes on where it was; TORTURE_SEED
	$(BIN)/python -m tests.torture.led --count $(READERS_COUNT) --processes $(READERS_PROCESSES) --seed $(or $(TORTURE_SEED),1)

compatibility: setup ## each release by brokers and Kafka's classes, and docs/compatibility.md; COMPATIBILITY=quick, COMPATIBILITY_ROWS=3.8
	$(BIN)/python -m tests.compatibility.run

.PHONY: spark-releases
spark-releases: setup ## Spark's tests by each release and Python, and the table in docs/spark.md; SPARK_RELEASE=4.1 SPARK_PYTHON=3.12
	$(BIN)/python -m tests.compatibility.spark

mutants: setup ## wrong rules, planted one by one: each must turn a test red; about an hour
	$(BIN)/python -m tests.mutants.run --kernel --agent

FUZZ_SECONDS ?= 60
# The kernel has no unsafe code. A sanitizer (address) may find more in the C of libzstd alone, and costs nine tenths of the inputs.
FUZZ_SANITIZER ?= none
FUZZ_TARGETS := decode rewrite
FUZZ_CORPUS := $(abspath .cache/fuzz)
fuzz: setup ## hostile bytes led by coverage: kernel, agent; FUZZ_SECONDS (60) each; nightly toolchain, cargo-fuzz, Jazzer
	cargo +nightly fuzz --version >/dev/null 2>&1 || cargo install cargo-fuzz --locked
	set -e; for target in $(FUZZ_TARGETS); do \
	  mkdir -p $(FUZZ_CORPUS)/$$target; \
	  tar -xzf kernel/fuzz/seeds/$$target.tar.gz -C $(FUZZ_CORPUS)/$$target; \
	  (cd kernel && cargo +nightly fuzz run -s $(FUZZ_SANITIZER) $$target $(FUZZ_CORPUS)/$$target -- \
	    -max_total_time=$(FUZZ_SECONDS) -max_len=4096 -timeout=20 -print_final_stats=1); \
	done
	$(BIN)/python -m tests.agent.fuzz --seconds $(FUZZ_SECONDS)

# ---- what is shipped --------------------------------------------------------------------------------------------------

wheel: $(VENV)/.core $(AGENT) ## dist/: a wheel with kernel, agent and what operators need, and a source distribution
	$(BIN)/python tools/wheel.py dist
	$(BIN)/python -m maturin sdist --out dist

screenshots: setup .cache/.test-tools ## docs/images/: pictures of the status page, from the demonstration's data
	$(BIN)/python -m tests.demo.screenshots docs/images

docs: $(VENV)/.dev ## .cache/site: the pages as a site, built offline; every link and every anchor in it is checked
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --strict
	@echo "the site: .cache/site/index.html"

deb: wheel ## dist/: a Debian package with cleanerd, what it needs, units, users, directories, completion
	$(BIN)/python tools/deb.py dist dist

$(VENV)/.release: $(VENV)/.core
	$(call PIP,release)
	@touch $@

.PHONY: release
release: $(VENV)/.release ## dist/release/: all that a release has, by RELEASING.md; the same bytes from the same commit in every folder
	$(BIN)/python tools/release.py dist/release

# ---- checks -----------------------------------------------------------------------------------------------------------

check: setup .cache/.test-tools ## linters, the glossary's words, types, layers, shell scripts, alert rules, units
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/python tools/glossary_check.py
	$(BIN)/mypy
	$(BIN)/python -m mypy.stubtest cleanerd._kernel
	$(BIN)/lint-imports --no-cache
	cargo fmt --all --check
	cargo clippy --quiet --workspace --all-targets -- -D warnings
	$(BIN)/python -m tests.daemon.promtool check rules config/prometheus/cleanerd.rules.yml
	$(BIN)/python -m tests.daemon.promtool check config --syntax-only config/prometheus/prometheus.yml
	$(BIN)/python -m tests.daemon.promtool test rules config/prometheus/cleanerd.rules.test.yml
	$(BIN)/shellcheck .ci/run agent/*.sh tools/*.sh tools/debian/* tests/kafka/*.sh config/kubernetes/*.sh
	$(BIN)/python -m pytest -q tests/packaging/test_systemd.py
	$(BIN)/python -m tools.prose
	@$(MAKE) --no-print-directory docs

format: setup ## put everything into the one format
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .
	cargo fmt --all

clean: ## remove what the targets made, .venv and caches included
	rm -rf $(VENV) .cache target dist cleanerd/_kernel*.so cleanerd/agent
