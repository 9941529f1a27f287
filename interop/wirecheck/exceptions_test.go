//go:build interop

package wirecheck

// exception is what a release of Kafka does not have, or has otherwise. An exception that excuses nothing fails the
// test, so the list stays true.
type exception struct {
	key      int16
	from, to int16 // versions
	differs  bool  // known to that release, and different; else unknown to it
}

var exceptions = map[string][]exception{
	"3.9.1": append([]exception{
		// The schema was unstable in 3.9 and changed before its first release in 4.1; klamm has the released one.
		{key: 87, to: 0, differs: true},
	}, list(
		// Versions and keys of Kafka 4.
		exception{key: 0, from: 12, to: 13},
		exception{key: 1, from: 18, to: 18},
		exception{key: 2, from: 10, to: 11},
		exception{key: 3, from: 13, to: 13},
		exception{key: 8, from: 10, to: 10},
		exception{key: 9, from: 10, to: 10},
		exception{key: 15, from: 6, to: 6},
		exception{key: 18, from: 5, to: 5},
		exception{key: 26, from: 5, to: 5},
		exception{key: 27, from: 2, to: 2},
		exception{key: 28, from: 5, to: 6},
		exception{key: 35, from: 5, to: 5},
		exception{key: 42, from: 3, to: 3},
		exception{key: 45, from: 1, to: 1},
		exception{key: 52, from: 2, to: 2},
		exception{key: 57, from: 2, to: 2},
		exception{key: 60, from: 2, to: 2},
		exception{key: 63, from: 2, to: 2},
		exception{key: 66, from: 2, to: 2},
		exception{key: 68, from: 1, to: 1},
		exception{key: 69, from: 1, to: 1},
		exception{key: 74, from: 1, to: 1},
		exception{key: 76, from: 1, to: 1},
		exception{key: 77, from: 1, to: 1},
		exception{key: 78, from: 1, to: 2},
		exception{key: 79, from: 1, to: 2},
		exception{key: 80, from: 1, to: 1},
		exception{key: 85, from: 1, to: 1},
		exception{key: 87, from: 1, to: 1},
		exception{key: 88, to: 1},
		exception{key: 89, to: 1},
		exception{key: 90, to: 1},
		exception{key: 91, to: 0},
		exception{key: 92, to: 0},
		exception{key: 93, to: 0},
		exception{key: 94, to: 0},
	)...),
	"4.1.0": append(droppedByKafka4, list(
		// Versions and keys that came after 4.1.
		exception{key: 2, from: 11, to: 11},
		exception{key: 18, from: 5, to: 5},
		exception{key: 27, from: 2, to: 2},
		exception{key: 28, from: 6, to: 6},
		exception{key: 35, from: 5, to: 5},
		exception{key: 42, from: 3, to: 3},
		exception{key: 63, from: 2, to: 2},
		exception{key: 78, from: 2, to: 2},
		exception{key: 79, from: 2, to: 2},
		exception{key: 80, from: 1, to: 1},
		exception{key: 85, from: 1, to: 1},
		exception{key: 87, from: 1, to: 1},
		exception{key: 88, from: 1, to: 1},
		exception{key: 89, from: 1, to: 1},
		exception{key: 90, from: 1, to: 1},
		exception{key: 93, to: 0},
		exception{key: 94, to: 0},
	)...),
	"4.4.0": droppedByKafka4,
}

// droppedByKafka4 is what Kafka 4 took out and klamm still speaks. The slice is clipped: appending copies it.
var droppedByKafka4 = func() []exception {
	e := list(
		// ZooKeeper mode.
		exception{key: 4, to: 7},
		exception{key: 5, to: 4},
		exception{key: 6, to: 8},
		exception{key: 7, to: 3},
		exception{key: 56, to: 1},
		// Versions of clients before 2.1 (KIP-896).
		exception{key: 0, to: 2},
		exception{key: 1, to: 3},
		exception{key: 2, to: 0},
		exception{key: 8, to: 1},
		exception{key: 9, to: 0},
		exception{key: 19, to: 1},
		exception{key: 20, to: 0},
		exception{key: 23, to: 1},
		exception{key: 27, to: 0},
		exception{key: 29, to: 0},
		exception{key: 30, to: 0},
		exception{key: 31, to: 0},
		exception{key: 32, to: 0},
		exception{key: 34, to: 0},
		exception{key: 35, to: 0},
		exception{key: 38, to: 0},
		exception{key: 39, to: 0},
		exception{key: 40, to: 0},
		exception{key: 41, to: 0},
		// Early access of share groups (KIP-932).
		exception{key: 76, to: 0},
		exception{key: 77, to: 0},
		exception{key: 78, to: 0},
		exception{key: 79, to: 0},
	)
	return e[:len(e):len(e)]
}()

func list(list ...exception) []exception { return list }
