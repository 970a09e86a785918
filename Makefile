# Databus: build, run, test. `make help` lists the targets.
SHELL := bash
.SHELLFLAGS := -euo pipefail -c
.DEFAULT_GOAL := help
BIN := $(CURDIR)/bin
TOOLS := $(BIN)/tools
MODULES := . bench
PEERS := benthos otelcol

.PHONY: help build run gen tools lint lint-tools fmt test test-race test-clients bench bench-log bench-peers bench-agent clean

help: ## list the targets
	@awk -F ':.*## ' '/^[a-z-]+:.*## /{printf "  make %-13s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

# Without -trimpath, so that the tests that follow find every package compiled already.
build: ## build bin/databus
	go build -o bin/databus ./cmd/databus

# Where `make run` keeps its data, and what it adds to every port.
DATA ?= data
OFFSET ?= 0

run: build ## start the whole suite on ./data (DATA=, OFFSET=), publish and read back a few events, stay up
	@exec bin/databus dev --data '$(DATA)' --port-offset '$(OFFSET)' --demo

tools: $(TOOLS)/.generators ## build the code generators, pinned in tools/go.mod
$(TOOLS)/.generators: tools/go.mod tools/go.sum
	cd tools && GOWORK=off GOBIN=$(TOOLS) go install tool
	@touch $@

gen: tools ## regenerate gen/ from proto/
	PATH=$(TOOLS):$$PATH buf generate
	go run ./internal/openapi/rewrite gen/openapi/databus.swagger.json

lint-tools: $(TOOLS)/.linters ## build the linter, pinned in tools/lint/go.mod
$(TOOLS)/.linters: tools/lint/go.mod tools/lint/go.sum
	cd tools/lint && GOWORK=off GOBIN=$(TOOLS) go install tool
	@touch $@

lint: tools lint-tools ## golangci-lint over both modules, buf lint over proto/
	for module in $(MODULES); do (cd $$module && $(TOOLS)/golangci-lint run ./...); done
	$(TOOLS)/buf lint proto

fmt: lint-tools ## format the Go files as lint wants them
	for module in $(MODULES); do (cd $$module && $(TOOLS)/golangci-lint fmt ./...); done

test: ## every Go test of both modules, the black-box tests over the binary among them
	scripts/install.sh postgres
	go test ./...
	cd bench && go test ./...

test-race: ## the tests of the product's own packages under the race detector
	scripts/install.sh cc
	go test -race ./internal/... ./services/... ./cmd/...

test-clients: tools ## clients in Java, Python and TypeScript against a `databus dev` of their own
	scripts/install.sh java python node
	PATH=$(TOOLS):$$PATH go test -count=1 -tags clients -timeout 20m ./test/clients/...
	go test -count=1 -tags clients -timeout 20m -run TestDump ./test/disk

bench: build ## REST publish and gRPC append beside bare peers (docs/benchmarks.md)
	cd bench && go run ./publish

bench-log: build ## the broker's log beside write+fdatasync, sendfile, bare gRPC, NATS JetStream and cat; 5 minutes, 20 GB of disk
	go test -run '^$$' -bench 'BesideBare|Fetch' -benchtime 3x ./services/broker/internal/log
	cd bench && go run ./log

bench-peers: ## build the systems that bench-agent compares with into bin/peers; takes minutes
	for peer in $(PEERS); do (cd bench/peers/$$peer && GOWORK=off go build -o $(BIN)/peers/ .); done
	cd bench/peers/dapr && GOWORK=off GOBIN=$(BIN)/peers go install -tags stablecomponents github.com/dapr/dapr/cmd/daprd

bench-agent: build ## the agent beside a bare handler and beside the peers that are built
	cd bench && go run ./agent

clean: ## remove what the build made; data/ stays
	rm -rf bin .cache
