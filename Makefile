# klamm: build, image, test, check, interop, bench. Every target works from a clean checkout.
STATICCHECK = honnef.co/go/tools/cmd/staticcheck@v0.8.2

.PHONY: build test race check sim mutants interop cluster bench image

build:
	CGO_ENABLED=0 go build -trimpath -ldflags '-s -w' -o bin/klamm ./cmd/klamm

# The image of Dockerfile, by docker, podman or buildah.
CONTAINER ?= docker
image:
	$(CONTAINER) build -t klamm .

test:
	go test ./...

race:
	go test -race ./...

check:
	@test -z "$$(gofmt -l .)" || { echo "gofmt wants changes in:"; gofmt -l .; exit 1; }
	go vet ./... && go vet -tags interop ./interop/...
	go run $(STATICCHECK) ./... && go run $(STATICCHECK) -tags interop ./interop/...
	go test ./internal/arch
	go mod tidy -diff

# The control plane simulated for long: random schedules of SEEDS seeds from FIRST on, and every scenario with every crash,
# every pair of crashes and every store fault. SCENARIOS=0 leaves the scenarios out (they take most of an hour). A failing seed
# prints a short script and the flags that repeat it.
SEEDS ?= 20000
FIRST ?= 1000000
SCENARIOS ?= 1
sim:
	go test ./internal/sim -count=1 -timeout 0 -v -run RandomSchedules -sim.first=$(FIRST) -sim.seeds=$(SEEDS)
	[ $(SCENARIOS) = 0 ] || go test ./internal/sim -count=1 -timeout 0 -v -run Scenarios -sim.complete | grep -v '^=== RUN'

# The core with one small fault at a time (internal/sim/mutants): every one must be found by the tests. Writes docs/mutants.md.
mutants:
	go test ./internal/sim -count=1 -timeout 0 -run EveryMutantOfTheCore -sim.mutants

# Real clients, Kafka's own tools and jars; installs what is missing through apt, pip and Maven.
interop:
	env=$$(bash interop/setup.sh) && eval "$$env" && go test -p 1 -tags interop -count=1 -timeout 30m ./interop/... ./internal/coord/zkstore

# The long form of interop's random faults and cut links on three broker processes: SEEDS runs of ROUNDS each.
ROUNDS = 100
SEEDS = 3
cluster:
	KLAMM_INTEROP_ROUNDS=$(ROUNDS) go test -tags interop -count=$(SEEDS) -timeout 120m -v -run 'TestThreeBrokersBear(RandomFaults|CutLinks)' ./interop

# Figures beside Apache Kafka's from the same run: single brokers, clusters of three, and 10,000 partitions on ZooKeeper.
bench:
	go run ./bench
	go run ./bench -steps cluster
	go run ./bench -steps cluster-topics,cluster-thousand,cluster-10k -only klamm-zk,kafka-3.9
