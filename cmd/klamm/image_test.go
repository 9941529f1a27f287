package main

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"sigs.k8s.io/yaml"

	"klamm/internal/cluster"
	"klamm/internal/config"
)

// dockerfile gives the arguments of the last stage's instructions, by name.
func dockerfile(t *testing.T) map[string][]string {
	t.Helper()
	text, err := os.ReadFile(filepath.Join("..", "..", "Dockerfile"))
	if err != nil {
		t.Fatal(err)
	}
	stages := strings.Split(string(text), "\nFROM ")
	instructions := map[string][]string{}
	for line := range strings.Lines(stages[len(stages)-1]) {
		name, arguments, _ := strings.Cut(strings.TrimSpace(line), " ")
		instructions[name] = append(instructions[name], arguments)
	}
	return instructions
}

func TestTheImageRunsACommandThatExists(t *testing.T) {
	image := dockerfile(t)
	var entry, command []string
	for list, arguments := range map[*[]string][]string{&entry: image["ENTRYPOINT"], &command: image["CMD"]} {
		if err := json.Unmarshal([]byte(strings.Join(arguments, "\n")), list); err != nil {
			t.Fatalf("%q: %v", arguments, err)
		}
	}
	if !slices.Equal(entry, []string{"/klamm"}) {
		t.Errorf("the image runs %q", entry)
	}
	var stdout bytes.Buffer
	if exit := run(append(command, "--help"), &stdout, io.Discard); exit != 0 || stdout.String() != serveHelp {
		t.Errorf("%q --help ends with %d and says\n%s", command, exit, stdout.String())
	}
}

// composition is what compose.yaml says of brokers.
type composition struct {
	Services map[string]struct {
		Image       string         `json:"image"`
		Environment map[string]any `json:"environment"`
		Volumes     []string       `json:"volumes"`
	} `json:"services"`
	Volumes map[string]struct{} `json:"volumes"`
}

// placed is what a broker's environment says of the places and the copies of data.
type placed struct {
	ID                                          cluster.BrokerID
	Listens, Advertises                         string
	LogDirs                                     []string
	EtcdDataDir, Web                            string
	Members                                     string
	Replicas, OffsetsReplicas, TransactionState int16
	InSync, TransactionStateInSync              int
}

func TestTheComposedBrokersAreThreeOfOneCluster(t *testing.T) {
	text, err := os.ReadFile(filepath.Join("..", "..", "compose.yaml"))
	if err != nil {
		t.Fatal(err)
	}
	var c composition
	if err := yaml.Unmarshal(text, &c); err != nil {
		t.Fatal(err)
	}
	if len(c.Services) != 3 {
		t.Errorf("%d services", len(c.Services))
	}
	image := dockerfile(t)
	for id := cluster.BrokerID(1); id <= 3; id++ {
		name := fmt.Sprint("kafka", id)
		service := c.Services[name]
		var env []string
		for key, value := range service.Environment {
			env = append(env, fmt.Sprintf("%s=%v", key, value))
		}
		got, warnings, err := config.Load("", nil, env)
		if err != nil || len(warnings) > 0 {
			t.Fatalf("%s: %v, %v", name, err, warnings)
		}
		want := placed{
			ID: id, Listens: "PLAINTEXT://0.0.0.0:9092", Advertises: "PLAINTEXT://" + name + ":9092", LogDirs: []string{"/data/log"}, EtcdDataDir: "/data/etcd", Web: "0.0.0.0:8080",
			Members: "[1@kafka1:2380 2@kafka2:2380 3@kafka3:2380]", Replicas: 3, OffsetsReplicas: 3, TransactionState: 3, InSync: 2, TransactionStateInSync: 2,
		}
		if d := cmp.Diff(want, placed{
			ID: got.ID, Listens: fmt.Sprint(got.Listeners[0]), Advertises: fmt.Sprint(got.AdvertisedListeners[0]), LogDirs: got.LogDirs, EtcdDataDir: got.EtcdDataDir, Web: got.WebListen,
			Members: fmt.Sprint(got.Etcd.Cluster), Replicas: got.DefaultReplicationFactor, OffsetsReplicas: got.OffsetsTopicReplicationFactor,
			TransactionState: got.TransactionStateLogReplicationFactor, InSync: got.MinInSyncReplicas, TransactionStateInSync: got.TransactionStateLogMinISR,
		}); d != "" {
			t.Errorf("%s (want -, got +)\n%s", name, d)
		}
		if _, there := c.Volumes[name]; !there || !slices.Equal(service.Volumes, []string{name + ":" + image["VOLUME"][0]}) {
			t.Errorf("%s has the volumes %q, the image %q", name, service.Volumes, image["VOLUME"])
		}
	}
}
