# make help lists the targets. Everything but test-net, test-sdks and image needs only Go.

SHELL      := bash
.SHELLFLAGS := -euo pipefail -c
.DEFAULT_GOAL := help

GO      ?= go
FUZZTIME ?= 20s
VERSION ?= $(shell git describe --tags --always --dirty 2>/dev/null || echo dev)
IMAGE   ?= fence-sidecar:$(VERSION)
BUILDER ?= golang:1.26
RUNTIME ?= scratch
MODULE  := github.com/fence-sidecar/fence-sidecar
LDFLAGS := -s -w -X main.version=$(VERSION)
# The race detector needs a C compiler.
RACE    := $(if $(shell command -v $${CC:-gcc} || command -v cc || command -v clang),-race,)
TESTFLAGS ?=

.PHONY: help run build test postgres race check lint vuln test-net test-pgbouncer test-sdks fuzz image clean

help: ## this list
	@awk -F':.*## ' '/^[a-z-]+:.*## / {printf "  make %-14s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

run: build ## build, then show a charge that survives a crash (fence-sidecar demo)
	bin/fence-sidecar demo

build: ## the static binary, bin/fence-sidecar
	CGO_ENABLED=0 $(GO) build -trimpath -ldflags '$(LDFLAGS)' -o bin/fence-sidecar ./cmd/fence-sidecar

test: postgres ## the Go tests; PostgreSQL's server is installed if it is missing and can be
	$(GO) test -timeout 20m $(TESTFLAGS) ./...

# PostgreSQL's server programs, from the system's package manager where they are missing. No server is started here: each test
# starts its own.
postgres:
	@$(GO) run ./claims/postgres/pgtest/pgbin >/dev/null 2>&1 || { \
	  as=; [ "$$(id -u)" = 0 ] || as="sudo -n"; \
	  if [ -n "$$as" ] && ! sudo -n true 2>/dev/null && ! command -v brew >/dev/null; then :; \
	  elif command -v apt-get >/dev/null; then $$as apt-get update -qq </dev/null && $$as env DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends postgresql </dev/null; \
	  elif command -v dnf >/dev/null; then $$as dnf install -y -q postgresql-server postgresql-contrib </dev/null; \
	  elif command -v apk >/dev/null; then $$as apk add -q postgresql </dev/null; \
	  elif command -v brew >/dev/null; then brew install -q postgresql@17 </dev/null; fi; } || true
	@$(GO) run ./claims/postgres/pgtest/pgbin >/dev/null

race: postgres ## the Go tests in random order, with the race detector
	@test -n '$(RACE)' || { echo "the race detector needs a C compiler: install gcc" >&2; exit 1; }
	$(GO) test -race -shuffle=on -timeout 25m $(TESTFLAGS) ./...

check: lint vuln race ## lint, vuln and race: what a change must pass

lint: bin/tools/staticcheck ## gofmt, vet, go fix, go mod tidy, staticcheck
	@out=$$(gofmt -l .); test -z "$$out" || { echo "not as gofmt writes it:" >&2; echo "$$out" >&2; exit 1; }
	$(GO) vet ./...
	$(GO) vet -tags net,pgbouncer ./...
	@out=$$($(GO) fix -diff ./... 2>&1) && test -z "$$out" || { echo "$$out"; echo "go fix has something to say: run go fix ./..." >&2; exit 1; }
	$(GO) mod tidy -diff
	$(GO) -C tools mod tidy -diff
	$(GO) -C tools vet ./...
	bin/tools/staticcheck ./...
	bin/tools/staticcheck -tags net,pgbouncer ./...

vuln: bin/tools/staticcheck ## known vulnerabilities, by the database in module golang.org/x/vulndb
	$(GO) -C tools test ./...
	@mkdir -p out
	@db=$$($(GO) mod download -json golang.org/x/vulndb@latest | sed -n 's/^\t"Dir": "\(.*\)",\{0,1\}$$/\1/p'); \
	test -d "$$db/data/osv" || { echo "no vulnerability database in module golang.org/x/vulndb" >&2; exit 1; }; \
	bin/tools/govulncheck -format json -db "file://$$db/data/osv" ./... >out/vuln.json; \
	echo "database: $${db##*/}"; bin/tools/vulngate <out/vuln.json

bin/tools/staticcheck: tools/go.mod tools/go.sum $(wildcard tools/*/*.go)
	@mkdir -p bin/tools
	$(GO) -C tools build -o ../bin/tools/ honnef.co/go/tools/cmd/staticcheck golang.org/x/vuln/cmd/govulncheck ./vulngate
	@touch $@

test-net: ## black holes in network namespaces; needs root, iproute2, nftables, iptables
	@for c in ip nft iptables; do command -v $$c >/dev/null || missing=1; done; \
	if [ -n "$${missing:-}" ] && [ "$$(id -u)" = 0 ] && command -v apt-get >/dev/null; then \
	  apt-get update -qq </dev/null && DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends iproute2 nftables iptables </dev/null; fi; \
	for c in ip nft iptables; do command -v $$c >/dev/null || { echo "test-net needs $$c: install iproute2 nftables iptables" >&2; exit 1; }; done; \
	test "$$(id -u)" = 0 || { echo "test-net needs root: it makes network namespaces" >&2; exit 1; }
	$(GO) test -count=1 -tags net ./proxy/testnet

test-pgbouncer: postgres ## PostgreSQL behind a real PgBouncer; needs pgbouncer
	@if ! PATH=$$PATH:/usr/sbin command -v pgbouncer >/dev/null && [ "$$(id -u)" = 0 ] && command -v apt-get >/dev/null; then \
	  apt-get update -qq </dev/null && DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends pgbouncer </dev/null; fi
	@PATH=$$PATH:/usr/sbin command -v pgbouncer >/dev/null || { echo "test-pgbouncer needs pgbouncer: install pgbouncer" >&2; exit 1; }
	$(GO) test -count=1 -tags pgbouncer -run Bouncer -timeout 15m ./claims/postgres/... ./e2e

test-sdks: build postgres ## the official SDKs, the lease keepers and fenced effects; needs node, npm, python3 with venv, javac
	@for c in node npm python3 java javac; do command -v $$c >/dev/null || { echo "test-sdks needs $$c: install nodejs npm python3-venv default-jdk-headless" >&2; exit 1; }; done
	examples/sdks/run.sh
	examples/sdks/gateways/run.sh
	examples/leases/run.sh
	examples/effects/run.sh

# By counts that double until the time is used up: a time limit of go test's own can fail for nothing (golang/go#75804).
fuzz: ## every fuzz target for FUZZTIME (20s) at least
	@found=0; bin=$$(mktemp -d); trap 'rm -rf "$$bin"' EXIT; cache=$$($(GO) env GOCACHE)/fuzz; limit=$(FUZZTIME); limit=$${limit%s}; built=; \
	while IFS=: read -r file line; do \
	  name=$$(sed -E 's/^func (Fuzz[A-Za-z0-9_]*)\(.*/\1/' <<<"$$line"); dir=$$(dirname $$file); found=$$((found+1)); \
	  if [ "$$built" != "$$dir" ]; then $(GO) test -c -fuzz . -o "$$bin/test" ./$$dir </dev/null; built=$$dir; fi; \
	  echo "fuzz $$name in $$dir for $${limit}s"; \
	  n=2000; began=$$SECONDS; while :; do \
	    (cd $$dir && "$$bin/test" -test.run '^$$' -test.fuzz "^$$name\$$" -test.fuzztime $${n}x -test.fuzzcachedir "$$cache/$(MODULE)/$$dir" </dev/null); \
	    [ $$((SECONDS-began)) -lt $$limit ] || break; n=$$((2*n)); \
	  done; \
	done < <(grep -rE --include='*_test.go' '^func Fuzz[A-Za-z0-9_]*\(' --exclude-dir=tools --exclude-dir=node_modules . | sed 's|^\./||' | sort); \
	echo "$$found fuzz targets"; test $$found -gt 0

image: ## the container image, with docker, podman or buildah
	@for c in docker podman buildah; do if command -v $$c >/dev/null && $$c info >/dev/null 2>&1; then tool=$$c; break; fi; done; \
	test -n "$${tool:-}" || { echo "image needs a running docker, or podman or buildah: install podman" >&2; exit 1; }; \
	$$tool build --build-arg BUILDER=$(BUILDER) --build-arg RUNTIME=$(RUNTIME) --build-arg VERSION=$(VERSION) -t $(IMAGE) -f Dockerfile .

clean: ## remove what was built
	rm -rf bin out coverage.out
