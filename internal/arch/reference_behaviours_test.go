package arch

import (
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// referenceTests counts the test methods of each of Kafka 3.9.1's suites.
var referenceTests = map[string]int{
	"TopicDeletionManagerTest": 4, "PartitionStateMachineTest": 22, "ReplicaStateMachineTest": 45, "ControllerContextTest": 10,
	"ControllerFailoverTest": 1, "ControllerIntegrationTest": 55, "PartitionLeaderElectionAlgorithmsTest": 13,
	"ControllerChannelManagerTest": 18, "ControllerEventManagerTest": 6, "KafkaControllerTest": 1, "DeleteTopicTest": 13,
	"DeleteTopicsRequestTest": 5, "DeleteTopicsRequestWithDeletionDisabledTest": 2, "StrictControllerMutationQuotaTest": 1,
	"PermissiveControllerMutationQuotaTest": 1, "ControllerMutationQuotaTest": 13, "ControllerMutationQuotaManagerTest": 6,
}

var scenarioName = regexp.MustCompile("`scenario: ([^`]+)`")

// Every test method of Kafka's suites has klamm's test, or the reason why there is nothing to show; tests and scenarios named
// there exist.
func TestReferenceBehavioursHaveATestOrAReason(t *testing.T) {
	page, err := os.ReadFile(filepath.Join(root, "docs", "reference-behaviours.md"))
	if err != nil {
		t.Fatal(err)
	}
	known, scenarios := knownTests(t), scenarioNames(t)
	seen := map[string]bool{}
	counts := map[string]int{}
	class := ""
	for line := range strings.Lines(string(page)) {
		if name, ok := strings.CutPrefix(line, "## "); ok {
			class = strings.TrimSpace(name)
		}
		cells := strings.Split(strings.Trim(strings.TrimSpace(line), "|"), "|")
		if class == "" || len(cells) != 3 || strings.TrimSpace(cells[0]) == "Kafka" || strings.HasPrefix(line, "|---") {
			continue
		}
		method := class + "#" + strings.TrimSpace(cells[0])
		if seen[method] {
			t.Errorf("%s is there twice", method)
		}
		seen[method] = true
		counts[class]++
		checkReference(t, method, cells[1], strings.TrimSpace(cells[2]), known, scenarios)
	}
	for name, want := range referenceTests {
		if counts[name] != want {
			t.Errorf("%s has %d rows, want %d", name, counts[name], want)
		}
	}
	if len(counts) != len(referenceTests) {
		t.Errorf("%d classes, want %d: %v", len(counts), len(referenceTests), counts)
	}
}

func checkReference(t *testing.T, method, tests, reason string, known map[string]string, scenarios map[string]bool) {
	t.Helper()
	names := append(namedTest.FindAllStringSubmatch(tests, -1), namedScript.FindAllStringSubmatch(tests, -1)...)
	played := scenarioName.FindAllStringSubmatch(tests, -1)
	if len(names)+len(played) == 0 && len(reason) < 20 {
		t.Errorf("%s has neither a test nor a reason", method)
	}
	for _, m := range names {
		if _, exists := known[m[1]]; !exists {
			t.Errorf("%s names %s, which does not exist", method, m[1])
		}
	}
	for _, m := range played {
		if !scenarios[m[1]] {
			t.Errorf("%s names the scenario %q, which does not exist", method, m[1])
		}
	}
}

// scenarioNames lists the scenarios of the simulator.
func scenarioNames(t *testing.T) map[string]bool {
	t.Helper()
	paths, err := filepath.Glob(filepath.Join(root, "internal", "sim", "scenarios_*_test.go"))
	if err != nil {
		t.Fatal(err)
	}
	names := map[string]bool{}
	for _, path := range paths {
		src, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		for _, m := range regexp.MustCompile(`\{name: "([^"]+)"`).FindAllStringSubmatch(string(src), -1) {
			names[m[1]] = true
		}
	}
	return names
}
