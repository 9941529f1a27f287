package config

import (
	"fmt"
	"strconv"
	"strings"
)

// ProtocolVersion is a value of inter.broker.protocol.version: a release and the step within it.
type ProtocolVersion struct {
	Major, Minor int
	Step         int // the n of -IVn
}

// AtLeast reports whether v is o or later.
func (v ProtocolVersion) AtLeast(o ProtocolVersion) bool {
	if v.Major != o.Major {
		return v.Major > o.Major
	}
	if v.Minor != o.Minor {
		return v.Minor > o.Minor
	}
	return v.Step >= o.Step
}

// String gives the full form, like "3.9-IV0".
func (v ProtocolVersion) String() string { return fmt.Sprintf("%d.%d-IV%d", v.Major, v.Minor, v.Step) }

// lastSteps holds, per release that Kafka 3.9 knows, its last step; a version without a step means that one.
// Versions 0.x are written without the leading 0: {8, ...} would be ambiguous, so they are kept apart in oldVersions.
var lastSteps = map[[2]int]int{
	{1, 0}: 0, {1, 1}: 0, {2, 0}: 1, {2, 1}: 2, {2, 2}: 1, {2, 3}: 1, {2, 4}: 1, {2, 5}: 0, {2, 6}: 0, {2, 7}: 2, {2, 8}: 1,
	{3, 0}: 1, {3, 1}: 0, {3, 2}: 0, {3, 3}: 3, {3, 4}: 0, {3, 5}: 2, {3, 6}: 2, {3, 7}: 4, {3, 8}: 0, {3, 9}: 0, {4, 0}: 1,
}

// oldVersions are the releases with three numbers, and their last steps; -1 means the release has no steps.
var oldVersions = map[string]int{"0.8.0": -1, "0.8.1": -1, "0.8.2": -1, "0.9.0": -1, "0.10.0": 1, "0.10.1": 2, "0.10.2": 0, "0.11.0": 2}

// parseProtocolVersion reads "3.9", "3.9.1", "3.9-IV0" and the old three-number forms (Kafka: MetadataVersion.fromVersionString).
// Releases before 1.0 all come back as 0.x with x the middle number.
func parseProtocolVersion(s string) (ProtocolVersion, bool) {
	parts := strings.Split(s, ".")
	keep := 2
	if strings.HasPrefix(s, "0.") {
		keep = 3
	}
	if len(parts) < keep {
		return ProtocolVersion{}, false
	}
	release, stepText, hasStep := strings.Cut(strings.Join(parts[:keep], "."), "-IV")
	step, err := strconv.Atoi(stepText)
	if hasStep && (err != nil || step < 0 || strings.HasPrefix(stepText, "+")) {
		return ProtocolVersion{}, false
	}
	if keep == 3 {
		last, known := oldVersions[release]
		if !known || hasStep && step > last {
			return ProtocolVersion{}, false
		}
		minor, _ := strconv.Atoi(parts[1])
		return ProtocolVersion{0, minor, max(step, 0)}, true
	}
	v := ProtocolVersion{}
	var errMajor, errMinor error
	majorText, minorText, _ := strings.Cut(release, ".")
	v.Major, errMajor = strconv.Atoi(majorText)
	v.Minor, errMinor = strconv.Atoi(minorText)
	last, known := lastSteps[[2]int{v.Major, v.Minor}]
	if errMajor != nil || errMinor != nil || !known || hasStep && step > last {
		return ProtocolVersion{}, false
	}
	v.Step = last
	if hasStep {
		v.Step = step
	}
	return v, true
}
