# Everything that can be run here. `make` alone lists it.

# One build for the operator and for the lab that builds and runs it, so that nothing is compiled twice.
TARGET := x86_64-unknown-linux-gnu
# The compiler's flags, with the character 31 between them: static programs in which no folder of this
# machine is named. They are the same as in tests/release/src/dist.rs.
UNIT := $(shell printf '\037')
STATIC := CARGO_ENCODED_RUSTFLAGS="-Ctarget-feature=+crt-static$(UNIT)--remap-path-prefix=$(or $(CARGO_HOME),$(HOME)/.cargo)=/cargo$(UNIT)--remap-path-prefix=$(CURDIR)=/ipu-operator"
# The lab alone is built, with the features that the lab, the operator, the plugin of kubectl and the simulator need
# together: the same packages as in tests/release/src/dist.rs. `cargo run` takes one package only. A line with it has
# nothing after it: the lab takes the place of the shell, and a Ctrl-C is its own.
BUILT := $(or $(CARGO_TARGET_DIR),target)
LAB := $(STATIC) cargo build --locked --release --target $(TARGET) --target-dir $(BUILT) \
  --package lab --package ipu-operator --package ipu-kubectl --package vipu-simulator --bin lab && exec $(BUILT)/$(TARGET)/release/lab
# For programs of `tests`, which link the operator themselves.
BENCH := $(STATIC) cargo run --locked --release --target $(TARGET) --package tests

CACHE := $(or $(IPU_OPERATOR_CACHE),$(HOME)/.cache/ipu-operator)
DENY_VERSION := 0.20.2
DENY := $(CACHE)/cargo-deny-$(DENY_VERSION)/bin/cargo-deny
CARGO_FUZZ_VERSION := 0.13.2
CARGO_FUZZ := $(CACHE)/cargo-fuzz-$(CARGO_FUZZ_VERSION)/bin/cargo-fuzz
# `make fuzz FUZZ_SECONDS=3600 FUZZ_TARGETS=rest_bodies`
FUZZ_SECONDS := 60
FUZZ_TARGETS := rest_bodies controllers_yaml partition_status vipu_replies

# `make soak SOAK_SEED=474`: where the simulation begins. Another one each time, so that no two runs are the same.
SOAK_SEED := $(shell od -An -N4 -tu4 /dev/urandom | tr -d ' ')

# The versions of Kubernetes with which not everything runs: only `make test-versions` does, or what is
# started with IPU_OPERATOR_KUBERNETES=1.35.
OTHER_VERSIONS := 1.35 1.34

.PHONY: help demo up down dist release release-twice check test test-apiserver test-nodes test-side-by-side test-versions test-full advisories bench bench-start placement race soak flood fuzz mutants

help: ## list what can be run
	@grep -E '^[a-z-]+:.*##' $(MAKEFILE_LIST) | sed -E 's/^([a-z-]+):[^#]*## (.*)/  make \1\t\2/' | expand -t 22

demo: ## start a cluster of two nodes, install the operator, run three jobs, stop everything
	@sh tests/preflight.sh demo
	@$(LAB) demo

up: ## start the cluster and install the operator; the last line printed is for the shell's eval
	@sh tests/preflight.sh up
	@$(LAB) up

down: ## end the cluster and remove all that it has made
	@sh tests/preflight.sh down
	@$(LAB) down

dist: ## build the operator, the agent, the plugin of kubectl and the guests for release into dist/
	@sh tests/preflight.sh dist
	@$(LAB) dist

release: ## build the package of a release, from which the operator is installed without a network, into dist/release/; ARM64=1: for arm64 too
	@sh tests/preflight.sh release
	@$(LAB) release $(if $(ARM64),--arm64)

release-twice: ## build the release a second time, in another folder and from nothing, and compare every byte
	@sh tests/preflight.sh release
	@$(LAB) release --twice $(if $(ARM64),--arm64)

check: ## formatting, lints and the tests that need no server: the quick half, for every commit
	@sh tests/preflight.sh check
	cargo fmt --all --check
	cargo clippy --locked --workspace --all-targets -- --deny warnings
	INSTA_UPDATE=no cargo test --locked --workspace --lib --bins --test agent --test bounded_json --test command_line --test compile --test policy_cli --test suite

test: ## all tests but the long ones that only test-full runs: on a real API server, and one end-to-end run on real nodes
	@sh tests/preflight.sh test
	@$(MAKE) --no-print-directory check
	@$(MAKE) --no-print-directory $(DENY)
	$(DENY) --locked --workspace check bans licenses sources
	@$(LAB) fetch
	@$(MAKE) --no-print-directory test-side-by-side

# Both wait for others most of the time. What the first prints comes after the second, so that neither is torn apart.
test-side-by-side:
	@printed=$$(mktemp) && \
	{ $(MAKE) --no-print-directory test-apiserver >"$$printed" 2>&1 & apiserver=$$!; } && \
	trap 'kill $$apiserver; rm -f "$$printed"; exit 130' INT TERM && \
	{ $(MAKE) --no-print-directory test-nodes && nodes=0 || nodes=1; } && \
	{ wait $$apiserver && apiserver=0 || apiserver=1; } && \
	cat "$$printed" && rm -f "$$printed" && [ $$apiserver$$nodes = 00 ]

# Four tests at a time keep two cores busy.
test-apiserver: ## the tests on a real API server
	INSTA_UPDATE=no cargo test --locked --workspace --test apiserver -- --test-threads=4

test-nodes: ## the end-to-end run on real nodes
	cargo test --locked --workspace --test e2e

test-versions: ## the end-to-end run, and the tests of definitions, webhooks and chart, under older versions of Kubernetes, which are built first
	@sh tests/preflight.sh test-versions
	for version in $(OTHER_VERSIONS); do \
	  echo "Kubernetes $$version" && export IPU_OPERATOR_KUBERNETES=$$version && \
	  INSTA_UPDATE=no tests/filtered.sh "differential webhook chart" --workspace --test apiserver && \
	  cargo test --locked --workspace --test e2e || exit 1; \
	done

# Hours, and a nightly compiler for `fuzz`, which says so where there is none.
test-full: test ## what a release needs: every test, the long ones too, and every figure of BENCHMARKS.md
	@sh tests/preflight.sh fuzz
	cargo test --locked --workspace --test languages
	cargo test --locked --workspace --test cert_manager
	IPU_OPERATOR_E2E=long cargo test --locked --workspace --test e2e
	IPU_OPERATOR_COUNTED_PARTITIONS=1000 INSTA_UPDATE=no tests/filtered.sh "accounted_once" --workspace --test apiserver
	@$(MAKE) --no-print-directory flood
	@$(MAKE) --no-print-directory test-versions
	@$(MAKE) --no-print-directory mutants
	@$(MAKE) --no-print-directory soak
	@$(MAKE) --no-print-directory fuzz
	@$(MAKE) --no-print-directory bench

advisories: $(DENY) ## hold the dependencies against the RustSec database, which is fetched from where it is published
	$(DENY) --locked --workspace check advisories

bench: ## the figures of BENCHMARKS.md: calls of guests, the policy plane, many jobs beside mpi-operator, large jobs, many partitions, the operator on real nodes
	@sh tests/preflight.sh bench
	$(BENCH) --bin bench-guests -- --bench
	@$(LAB) dist
	$(BENCH) --bin bench-policies
	$(BENCH) --no-default-features --bin bench-jobs
	$(BENCH) --no-default-features --bin bench-partitions
	$(BENCH) --no-default-features --bin bench-cluster -- all

bench-start: ## how long the program of a job takes to start on real nodes, beside a batch Job and beside mpi-operator
	@sh tests/preflight.sh bench
	$(BENCH) --no-default-features --bin bench-cluster -- start

placement: ## what placement policies reach on jobs of a real cluster, with gaps to the bound and plots, and how decisions grow
	@sh tests/preflight.sh dist
	$(BENCH) --no-default-features --bin bench-placement

race: ## jobs in a second beside mpi-operator and beside a loop that makes the same writes
	@sh tests/preflight.sh bench
	@$(LAB) dist
	$(BENCH) --no-default-features --bin bench-jobs -- --race

# The tests' own profile, with debug assertions and overflow checks, and only these crates optimised: all
# that they depend on is the same as in `make check` and is not compiled again.
soak: ## simulate a million lives of jobs, from a seed that is new each time, check the large bounds of the model, and give the partition core ten million random statuses
	IPU_OPERATOR_SIMULATION_FIRST_SEED=$(SOAK_SEED) IPU_OPERATOR_SIMULATED_LIVES=1000000 IPU_OPERATOR_MODEL=large \
	  IPU_OPERATOR_FUZZ_CASES=10000000 RUNNER_OPTIONS=--nocapture tests/filtered.sh "simulation:: model::no_order_of_events" \
	  --workspace --lib --package ipu-partitions --config profile.dev.package.ipu-partitions.opt-level=2 \
	  --config profile.dev.package.ipu-api.opt-level=2

flood: ## the run on real nodes whose load from nine Pods lasts ten minutes beside hostile policies
	@sh tests/preflight.sh test
	IPU_OPERATOR_FLOOD_SECONDS=600 cargo test --locked --workspace --test e2e -- flood

fuzz: ## lead inputs to what they have not met yet, with a nightly compiler: each target for FUZZ_SECONDS, else 60
	@sh tests/preflight.sh fuzz
	@$(MAKE) --no-print-directory $(CARGO_FUZZ)
	PATH="$(dir $(CARGO_FUZZ)):$$PATH" tests/fuzz/run.sh $(FUZZ_SECONDS) $(FUZZ_TARGETS)

mutants: ## make mistakes in a copy of the sources, one after the other, and see the simulation, the model check and tests find them
	cargo run --locked --package tests --bin mutants

$(DENY):
	cargo install cargo-deny --version $(DENY_VERSION) --debug --locked --no-default-features --root $(CACHE)/cargo-deny-$(DENY_VERSION)

$(CARGO_FUZZ):
	cargo install cargo-fuzz --version $(CARGO_FUZZ_VERSION) --locked --root $(CACHE)/cargo-fuzz-$(CARGO_FUZZ_VERSION)
