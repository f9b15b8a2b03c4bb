# All commands of the project. `make` without a target lists them.

# The operator, and the test harness that builds and runs it, share one build, so that nothing is compiled twice.
TARGET := x86_64-unknown-linux-gnu
# The compiler's flags, separated by the character 31: programs are static, and contain no path of this machine.
# tests/release/src/dist.rs uses the same flags.
UNIT := $(shell printf '\037')
STATIC := CARGO_ENCODED_RUSTFLAGS="-Ctarget-feature=+crt-static$(UNIT)--remap-path-prefix=$(or $(CARGO_HOME),$(HOME)/.cargo)=/cargo$(UNIT)--remap-path-prefix=$(CURDIR)=/ipu-operator"
# Builds the harness, and runs it. The packages are those of tests/release/src/dist.rs, because each crate has the features
# that all of them need together, and `cargo run` accepts only one package. $(HARNESS) must be the last command of a
# line: `exec` replaces the shell by the harness, so that Ctrl-C reaches it.
BUILT := $(or $(CARGO_TARGET_DIR),target)
BUILD := $(STATIC) cargo build --locked --release --target $(TARGET) --target-dir $(BUILT) \
  --package harness --package ipu-operator --package ipu-kubectl --package vipu-simulator --bin harness
RUN := exec $(BUILT)/$(TARGET)/release/harness
HARNESS := $(BUILD) && $(RUN)
# The same for commands that need the programs of the operator: one build uses all cores until its end.
HARNESS_AND_PROGRAMS := $(BUILD) --bin ipu-operator --bin kubectl-ipu --bin vipu-simulator && $(RUN)
# Runs programs of `tests`, which link the operator.
BENCH := $(STATIC) cargo run --locked --release --target $(TARGET) --package tests

CACHE := $(or $(IPU_OPERATOR_CACHE),$(HOME)/.cache/ipu-operator)
DENY_VERSION := 0.20.2
DENY := $(CACHE)/cargo-deny-$(DENY_VERSION)/bin/cargo-deny
CARGO_FUZZ_VERSION := 0.13.2
CARGO_FUZZ := $(CACHE)/cargo-fuzz-$(CARGO_FUZZ_VERSION)/bin/cargo-fuzz
# `make fuzz FUZZ_SECONDS=3600 FUZZ_TARGETS=rest_bodies`
FUZZ_SECONDS := 60
FUZZ_TARGETS := rest_bodies controllers_yaml partition_status vipu_replies

# The first seed of the simulation, as in `make soak SOAK_SEED=474`. By default each run has another seed.
SOAK_SEED := $(shell od -An -N4 -tu4 /dev/urandom | tr -d ' ')

# Further versions of Kubernetes. Only `make test-versions` uses them, and commands with IPU_OPERATOR_KUBERNETES=1.35
# or 1.34.
OTHER_VERSIONS := 1.35 1.34

.PHONY: help demo up down dist release release-twice check test test-apiserver test-nodes test-load test-side-by-side test-versions test-full advisories bench bench-start placement race soak flood fuzz mutants

help: ## list the targets
	@grep -E '^[a-z-]+:.*##' $(MAKEFILE_LIST) | sed -E 's/^([a-z-]+):[^#]*## (.*)/  make \1\t\2/' | expand -t 22

demo: ## start a cluster of two nodes, install the operator, run three jobs, stop everything
	@sh tests/preflight.sh demo
	@$(HARNESS_AND_PROGRAMS) demo

up: ## start the cluster and install the operator; the last line of the output is for the shell's eval
	@sh tests/preflight.sh up
	@$(HARNESS_AND_PROGRAMS) up

down: ## stop the cluster and remove everything that it has created
	@sh tests/preflight.sh down
	@$(HARNESS) down

dist: ## build the operator, the agent, the plugin of kubectl and the guests for release into dist/
	@sh tests/preflight.sh dist
	@$(HARNESS_AND_PROGRAMS) dist

release: ## build the package of a release, which installs the operator without a network, into dist/release/; with ARM64=1 for arm64 too
	@sh tests/preflight.sh release
	@$(HARNESS) release $(if $(ARM64),--arm64)

release-twice: ## build the release again in another folder, without a cache, and compare every byte
	@sh tests/preflight.sh release-twice
	@$(HARNESS) release --twice $(if $(ARM64),--arm64)

check: ## formatting, lints and the tests that need no server: run it before every commit
	@sh tests/preflight.sh check
	cargo fmt --all --check
	cargo clippy --locked --workspace --all-targets -- --deny warnings
	INSTA_UPDATE=no cargo test --locked --workspace --lib --bins --test agent --test bounded_json --test command_line --test compile --test policy_cli --test suite

test: ## all tests except the long ones, which only test-full runs: on a real API server, and one end-to-end run on real nodes
	@sh tests/preflight.sh test
	@$(MAKE) --no-print-directory check
	@$(MAKE) --no-print-directory $(DENY)
	$(DENY) --locked --workspace check bans licenses sources
	@$(HARNESS) fetch
	@$(MAKE) --no-print-directory test-side-by-side

# Both mostly wait for other processes. The load test compares delays, so that it runs alone, afterwards. The output of the
# first follows that of the others, so that they do not mix.
test-side-by-side:
	@printed=$$(mktemp) && \
	{ $(MAKE) --no-print-directory test-apiserver >"$$printed" 2>&1 & apiserver=$$!; } && \
	trap 'kill $$apiserver; rm -f "$$printed"; exit 130' INT TERM && \
	{ $(MAKE) --no-print-directory test-nodes && nodes=0 || nodes=1; } && \
	{ wait $$apiserver && apiserver=0 || apiserver=1; } && \
	{ $(MAKE) --no-print-directory test-load && load=0 || load=1; } && \
	cat "$$printed" && rm -f "$$printed" && [ $$apiserver$$nodes$$load = 000 ]

# Four tests at the same time use two cores fully.
test-apiserver: ## run the tests on a real API server
	@sh tests/preflight.sh test-apiserver
	INSTA_UPDATE=no cargo test --locked --workspace --test apiserver -- --test-threads=4

test-nodes: ## run the end-to-end tests on real nodes, except the load test
	@sh tests/preflight.sh test-nodes
	cargo test --locked --workspace --test e2e -- --skip flood_from_a_pod

test-load: ## run the load test on real nodes
	@sh tests/preflight.sh test-load
	cargo test --locked --workspace --test e2e -- flood_from_a_pod

test-versions: ## run the end-to-end tests, and the tests of CRDs, webhooks and chart, with older versions of Kubernetes; builds these versions first
	@sh tests/preflight.sh test-versions
	for version in $(OTHER_VERSIONS); do \
	  echo "Kubernetes $$version" && export IPU_OPERATOR_KUBERNETES=$$version && \
	  INSTA_UPDATE=no tests/filtered.sh "differential webhook chart" --workspace --test apiserver && \
	  cargo test --locked --workspace --test e2e || exit 1; \
	done

# It takes hours. `fuzz` needs a nightly compiler, and reports a missing one at the start.
test-full: test ## run all checks for a release: every test including the long ones, and the benchmarks
	@sh tests/preflight.sh fuzz
	cargo test --locked --workspace --test languages
	cargo test --locked --workspace --test cert_manager
	IPU_OPERATOR_E2E=long cargo test --locked --workspace --test e2e
	IPU_OPERATOR_APISERVER=full INSTA_UPDATE=no tests/filtered.sh "accounted_once many_at_once many_pods pages_and_memory replay_predicts" --workspace --test apiserver
	@$(MAKE) --no-print-directory flood
	@$(MAKE) --no-print-directory test-versions
	@$(MAKE) --no-print-directory mutants
	@$(MAKE) --no-print-directory soak
	@$(MAKE) --no-print-directory fuzz
	@$(MAKE) --no-print-directory bench
	@$(MAKE) --no-print-directory placement

advisories: ## check the dependencies against the RustSec database, which it downloads
	@sh tests/preflight.sh advisories
	@$(MAKE) --no-print-directory $(DENY)
	$(DENY) --locked --workspace check advisories

bench: ## measure the figures of BENCHMARKS.md except those of placement and flood: calls of guests, policies, many jobs compared with mpi-operator, large jobs, many partitions, the operator on real nodes
	@sh tests/preflight.sh bench
	$(BENCH) --bin bench-guests -- --bench
	@$(HARNESS_AND_PROGRAMS) dist
	$(BENCH) --bin bench-policies
	$(BENCH) --no-default-features --bin bench-jobs
	$(BENCH) --no-default-features --bin bench-partitions
	$(BENCH) --no-default-features --bin bench-cluster -- all

bench-start: ## measure how long the program of a job takes to start on real nodes, compared with a batch Job and with mpi-operator
	@sh tests/preflight.sh bench-start
	$(BENCH) --no-default-features --bin bench-cluster -- start

placement: ## measure placement policies with jobs of a real cluster, draw plots, and measure the growth of the decision time
	@sh tests/preflight.sh placement
	$(BENCH) --no-default-features --bin bench-placement

race: ## measure jobs per second, compared with mpi-operator and with a loop that sends the same writes
	@sh tests/preflight.sh race
	@$(HARNESS_AND_PROGRAMS) dist
	$(BENCH) --no-default-features --bin bench-jobs -- --race

# The profile of tests has debug assertions and overflow checks. Only these crates are optimised, so that their
# dependencies are those of `make check` and are not compiled again.
soak: ## simulate a million lives of jobs from a new seed, check the large bounds of the model, and test the partition core with ten million random statuses
	@sh tests/preflight.sh soak
	IPU_OPERATOR_SIMULATION_FIRST_SEED=$(SOAK_SEED) IPU_OPERATOR_SIMULATED_LIVES=1000000 IPU_OPERATOR_MODEL=large \
	  IPU_OPERATOR_FUZZ_CASES=10000000 RUNNER_OPTIONS=--nocapture tests/filtered.sh "simulation:: model::no_order_of_events" \
	  --workspace --lib --package ipu-partitions --config profile.dev.package.ipu-partitions.opt-level=2 \
	  --config profile.dev.package.ipu-api.opt-level=2

flood: ## run a load test on real nodes: nine Pods load every port for ten minutes, beside hostile policies
	@sh tests/preflight.sh flood
	IPU_OPERATOR_FLOOD_SECONDS=600 cargo test --locked --workspace --test e2e -- flood

fuzz: ## run the coverage-guided fuzz targets with a nightly compiler, each for FUZZ_SECONDS (60 by default)
	@sh tests/preflight.sh fuzz
	@$(MAKE) --no-print-directory $(CARGO_FUZZ)
	PATH="$(dir $(CARGO_FUZZ)):$$PATH" tests/fuzz/run.sh $(FUZZ_SECONDS) $(FUZZ_TARGETS)

mutants: ## apply each mutation to a copy of the sources, and check that the simulation, the model check or tests find it
	@sh tests/preflight.sh mutants
	cargo run --locked --package tests --bin mutants

$(DENY):
	cargo install cargo-deny --version $(DENY_VERSION) --debug --locked --no-default-features --root $(CACHE)/cargo-deny-$(DENY_VERSION)

$(CARGO_FUZZ):
	cargo install cargo-fuzz --version $(CARGO_FUZZ_VERSION) --locked --root $(CACHE)/cargo-fuzz-$(CARGO_FUZZ_VERSION)
