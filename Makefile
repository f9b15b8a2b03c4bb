# All commands of the project. `make` without a target lists them.

# Everything but a release is built with one profile, one target and one set of flags, so that no command compiles the
# dependencies of another again. Programs are static, because they run in images without any file beside them.
export CARGO_BUILD_TARGET := x86_64-unknown-linux-gnu
export CARGO_ENCODED_RUSTFLAGS := -Ctarget-feature=+crt-static
# Incremental files would double the target folder.
export CARGO_INCREMENTAL := 0
# Commands print how long they took since then.
export IPU_OPERATOR_BEGAN := $(shell date +%s)
# Builds what a command needs, side by side, and then becomes that command. It must be the last of a line, so that Ctrl-C
# reaches it.
PROVISION := exec cargo run --locked --package provision --
# Runs a command without these flags: for programs of this machine, and fuzz targets choose their own. GNU make 4.3 cannot
# take variables from one target.
WITHOUT_FLAGS := env --unset=CARGO_BUILD_TARGET --unset=CARGO_ENCODED_RUSTFLAGS
# The folder in which cargo builds.
BUILT := $(or $(CARGO_TARGET_DIR),target)
# Builds the programs of a release into dist/, for benchmarks.
DIST := cargo run --locked --package provision -- dist
# The lints of all targets of the workspace, as errors.
CLIPPY := cargo clippy --locked --workspace --all-targets --features tests/long -- --deny warnings
# Benchmarks run the programs of a release.
BENCH := IPU_OPERATOR_PROFILE=release cargo run --locked --release --package bench

CACHE := $(or $(IPU_OPERATOR_CACHE),$(HOME)/.cache/ipu-operator)
# Only `make advisories` needs it: the suite checks deny.toml without it.
DENY_VERSION := 0.20.2
DENY := $(CACHE)/cargo-deny-$(DENY_VERSION)/bin/cargo-deny
# Only `make site` needs it: the suite checks the sources of the site without it.
MDBOOK_VERSION := 0.5.4
MDBOOK := $(CACHE)/mdbook-$(MDBOOK_VERSION)/bin/mdbook
CARGO_FUZZ_VERSION := 0.13.2
CARGO_FUZZ := $(CACHE)/cargo-fuzz-$(CARGO_FUZZ_VERSION)/bin/cargo-fuzz
# `make fuzz FUZZ_SECONDS=3600 FUZZ_TARGETS=rest_bodies`
FUZZ_SECONDS := 60
FUZZ_TARGETS := rest_bodies controllers_yaml partition_status vipu_replies

# The first seed of the simulation, as in `make soak SOAK_SEED=474`. By default each run has another seed.
SOAK_SEED := $(shell od -An -N4 -tu4 /dev/urandom | tr -d ' ')

# Further versions of Kubernetes. Only `make test-versions` uses them, and commands with IPU_OPERATOR_KUBERNETES=1.36
# or 1.35.
OTHER_VERSIONS := 1.36 1.35

.PHONY: help demo up down dist release release-twice plugins site check lint unit generate verify-generated test test-apiserver test-nodes test-versions test-full advisories bench bench-partitions bench-start placement race soak flood fuzz mutants

help: ## list the targets
	@grep -E '^[a-z-]+:.*##' $(MAKEFILE_LIST) | sed -E 's/^([a-z-]+):[^#]*## (.*)/  make \1\t\2/' | expand -t 22

demo: ## start a cluster of two nodes, install the operator, run three jobs, stop everything
	@sh tests/preflight.sh demo
	@$(PROVISION) demo

up: ## start the cluster and install the operator; the last line of the output is for the shell's eval
	@sh tests/preflight.sh up
	@$(PROVISION) up

down: ## stop the cluster and remove everything that it has created
	@sh tests/preflight.sh down
	@$(PROVISION) down

dist: ## build the operator, the agent, the plugin of kubectl and the guests for release into dist/
	@sh tests/preflight.sh dist
	@$(PROVISION) dist

release: ## build the package of a release, which installs the operator without a network, into dist/release/; with ARM64=1 for arm64 too, signed with COSIGN_KEY, pushed to REGISTRY (its own CA: REGISTRY_CA)
	@sh tests/preflight.sh release
	@$(PROVISION) release $(if $(ARM64),--arm64) $(if $(COSIGN_KEY),--key $(COSIGN_KEY)) $(if $(REGISTRY),--registry $(REGISTRY)) $(if $(REGISTRY_CA),--registry-ca $(REGISTRY_CA))

release-twice: ## build the release again in another folder, without a cache, and compare every byte
	@sh tests/preflight.sh release-twice
	@$(PROVISION) release --twice $(if $(ARM64),--arm64)

plugins: ## build kubectl ipu for Windows into dist/plugins, and for macOS where SDKROOT names Apple's SDK
	@sh tests/preflight.sh plugins
	@$(WITHOUT_FLAGS) tests/plugins.sh $(CACHE) dist/plugins

site: ## build a site of the documents, with search, into dist/site/html
	@sh tests/preflight.sh site
	@$(MAKE) --no-print-directory $(MDBOOK)
	cargo run --locked --quiet --package release --bin build-site -- dist/site
	$(MDBOOK) build dist/site

check: lint unit ## formatting, lints and the tests that need no server: run it before every commit

lint: ## formatting and lints
	@sh tests/preflight.sh lint
	cargo fmt --all --check
	$(CLIPPY)

unit: ## the tests that need neither a server nor root
	@sh tests/preflight.sh unit
	INSTA_UPDATE=no cargo test --locked --workspace --lib --test agent --test bounded_json --test command_line --test compile --test policy_cli --test suite

test: ## all tests except the long ones, which only test-full runs: on a real API server, and on real nodes
	@sh tests/preflight.sh test
	cargo fmt --all --check
	@$(PROVISION) test

generate: ## write all generated files again: CRDs with their reference, the chart's schema and tables, the reference of metrics
	@sh tests/preflight.sh generate
	UPDATE_CRDS=1 tests/filtered.sh "crd::" --workspace --lib
	UPDATE_CHART=1 tests/filtered.sh "chart:: metrics::" --workspace --test suite

verify-generated: ## compare all generated files with what they are generated from
	@sh tests/preflight.sh verify-generated
	tests/filtered.sh "crd::" --workspace --lib
	tests/filtered.sh "chart:: metrics::" --workspace --test suite

# Tests wait for conditions for more than half of their time, so that five at the same time use two cores fully.
test-apiserver: ## run the tests on a real API server
	@sh tests/preflight.sh test-apiserver
	INSTA_UPDATE=no cargo test --locked --workspace --test apiserver -- --test-threads=5

test-nodes: ## run the trials on real nodes
	@sh tests/preflight.sh test-nodes
	cargo test --locked --workspace --test e2e

test-versions: ## run the end-to-end tests, and the tests of CRDs, webhooks and chart, with older versions of Kubernetes; builds these versions first
	@sh tests/preflight.sh test-versions
	for version in $(OTHER_VERSIONS); do \
	  echo "Kubernetes $$version" && export IPU_OPERATOR_KUBERNETES=$$version && \
	  INSTA_UPDATE=no tests/filtered.sh "differential webhook chart" --workspace --test apiserver && \
	  cargo test --locked --workspace --test e2e || exit 1; \
	done
	IPU_OPERATOR_KUBELET=oldest tests/filtered.sh "parallel image_delivery" --workspace --test e2e

# It takes hours. `fuzz` needs a nightly compiler, and reports a missing one at the start.
test-full: test ## run all checks for a release: every test including the long ones, and the benchmarks
	@sh tests/preflight.sh fuzz
	cargo test --locked --workspace --test languages
	cargo test --locked --workspace --test cert_manager
	cargo run --locked --package provision -- previous-release
	IPU_OPERATOR_E2E=long IPU_OPERATOR_PROFILE=release cargo test --locked --workspace --test e2e
	IPU_OPERATOR_APISERVER=full INSTA_UPDATE=no tests/filtered.sh "accounted_once many_at_once many_jobs many_pods pages_and_memory replay_predicts" --workspace --features=tests/long --test apiserver
	CARGO_ENCODED_RUSTFLAGS= CARGO_TARGET_DIR=$(BUILT)/dynamic tests/filtered.sh "wrong_clock" --workspace --features=tests/long --test apiserver
	@$(MAKE) --no-print-directory flood
	@$(MAKE) --no-print-directory test-versions
	@$(MAKE) --no-print-directory mutants
	@$(MAKE) --no-print-directory soak
	@$(MAKE) --no-print-directory fuzz
	@$(MAKE) --no-print-directory bench
	@$(MAKE) --no-print-directory placement

advisories: ## check the dependencies against the RustSec database, which it downloads, and deny.toml with cargo-deny
	@sh tests/preflight.sh advisories
	@$(MAKE) --no-print-directory $(DENY)
	$(DENY) --locked --workspace check

bench: ## measure the figures of BENCHMARKS.md except those of placement and flood: calls of guests, many jobs compared with mpi-operator, large jobs, many partitions, the operator on real nodes
	@sh tests/preflight.sh bench
	$(BENCH) --bin bench-guests
	@$(DIST)
	$(BENCH) --bin bench-jobs
	$(BENCH) --bin bench-partitions
	$(BENCH) --bin bench-cluster -- all

bench-partitions: ## measure the proxy: decisions, many partitions, and 10,000 waiting requests on 256 simulated V-IPU controllers, each figure beside its goal
	@sh tests/preflight.sh bench
	$(DIST)
	$(BENCH) --bin bench-partitions

bench-start: ## measure how long the program of a job takes to start on real nodes, compared with a batch Job and with mpi-operator
	@sh tests/preflight.sh bench-start
	$(BENCH) --bin bench-cluster -- start

placement: ## measure placement policies with jobs of a real cluster, and draw plots
	@sh tests/preflight.sh placement
	@$(DIST)
	$(BENCH) --bin bench-placement

race: ## measure the CPU time of the API server for each job and jobs per second, in turns with mpi-operator and a loop that sends the same writes
	@sh tests/preflight.sh race
	@$(DIST)
	$(BENCH) --bin bench-jobs -- --race

# The profile of tests has debug assertions and overflow checks. Only these crates are optimised, so that their
# dependencies are those of `make check` and are not compiled again.
soak: ## simulate a million lives of jobs from a new seed, check the large bounds of the model, and test the partition core with ten million random statuses
	@sh tests/preflight.sh soak
	IPU_OPERATOR_SIMULATION_FIRST_SEED=$(SOAK_SEED) IPU_OPERATOR_SIMULATED_LIVES=1000000 IPU_OPERATOR_MODEL=large \
	  IPU_OPERATOR_FUZZ_CASES=10000000 RUNNER_OPTIONS=--nocapture tests/filtered.sh "simulation:: model::no_order_of_events" \
	  --workspace --lib --package partition-simulation --config profile.dev.package.partition-simulation.opt-level=2 \
	  --config profile.dev.package.ipu-api.opt-level=2 --config profile.dev.package.ipu-ledger.opt-level=2 \
	  --config profile.dev.package.ipu-placement.opt-level=2

flood: ## run a load test on real nodes: nine Pods load every port for ten minutes, beside hostile policies
	@sh tests/preflight.sh flood
	IPU_OPERATOR_FLOOD_SECONDS=600 IPU_OPERATOR_PROFILE=release cargo test --locked --workspace --test e2e -- flood

fuzz: ## run the coverage-guided fuzz targets with a nightly compiler, each for FUZZ_SECONDS (60 by default)
	@sh tests/preflight.sh fuzz
	@$(MAKE) --no-print-directory $(CARGO_FUZZ)
	PATH="$(dir $(CARGO_FUZZ)):$$PATH" $(WITHOUT_FLAGS) tests/fuzz/run.sh $(FUZZ_SECONDS) $(FUZZ_TARGETS)

mutants: ## apply each mutation to a copy of the sources, and check that the simulation, the model check or tests find it
	@sh tests/preflight.sh mutants
	$(WITHOUT_FLAGS) cargo run --locked --package bench --bin mutants

$(DENY):
	$(WITHOUT_FLAGS) cargo install cargo-deny --version $(DENY_VERSION) --debug --locked --no-default-features --root $(CACHE)/cargo-deny-$(DENY_VERSION)

$(MDBOOK):
	$(WITHOUT_FLAGS) cargo install mdbook --version $(MDBOOK_VERSION) --debug --locked --no-default-features --features search --root $(CACHE)/mdbook-$(MDBOOK_VERSION)

$(CARGO_FUZZ):
	$(WITHOUT_FLAGS) cargo install cargo-fuzz --version $(CARGO_FUZZ_VERSION) --locked --root $(CACHE)/cargo-fuzz-$(CARGO_FUZZ_VERSION)
