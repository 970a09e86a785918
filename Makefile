# Databus: build, run, test. `make help` lists the targets.
SHELL := bash
TOOLS := $(CURDIR)/bin/tools

.PHONY: build gen tools

build: ## build bin/databus
	go build -trimpath -o bin/databus ./cmd/databus

tools: $(TOOLS)/buf ## build the code generators, pinned in tools/go.mod
$(TOOLS)/buf: tools/go.mod tools/go.sum
	cd tools && GOWORK=off GOBIN=$(TOOLS) go install tool

gen: tools ## regenerate gen/ from proto/
	PATH=$(TOOLS):$$PATH buf generate
