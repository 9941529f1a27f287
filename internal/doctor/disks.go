package doctor

import (
	"fmt"
	"strconv"
	"time"

	"klamm/internal/cluster"
	"klamm/internal/coord"
)

// removalGrace is how long a directory may wait for its removal: log.segment.delete.delay.ms is a minute by default.
const removalGrace = 10 * time.Minute

// disks holds what lies in log dirs against the store.
func (v *view) disks(dirs []LogDir) []Finding {
	var out []Finding
	for i := range dirs {
		out = append(out, v.disk(&dirs[i])...)
	}
	return out
}

func (v *view) disk(d *LogDir) []Finding {
	if d.Err != "" {
		return []Finding{{
			Code: "log-dir-unreadable", Severity: Error, Subject: d.Path,
			What:     fmt.Sprintf("Log dir %s cannot be read.", d.Path),
			Evidence: []Evidence{{d.Path, d.Err}},
			Why:      "Its disk may have failed, it may not be there, or this user may not read it.",
			Next:     "Run the examination on the broker's machine as the broker's user. See the system's log for errors of the disk.",
		}}
	}
	if f, foreign := v.foreign(d); foreign {
		return []Finding{f}
	}
	var out []Finding
	if d.Broker == cluster.NoBroker {
		return append(out, Finding{
			Code: "log-dir-without-owner", Severity: Info, Subject: d.Path,
			What:     fmt.Sprintf("Log dir %s has no meta.properties: whose it is is not known, and its replicas are not judged.", d.Path),
			Evidence: []Evidence{{d.Path, count(len(d.Entries), "folder")}},
			Why:      "A broker writes the file at its first start.",
			Next:     "If a broker has run on it, find out who removed the file.",
		})
	}
	return append(out, v.directories(d)...)
}

// foreign finds a dir of another cluster.
func (v *view) foreign(d *LogDir) (Finding, bool) {
	n := v.node(coord.ClusterIDPath)
	if n == nil || d.ClusterID == "" {
		return Finding{}, false
	}
	id, err := coord.DecodeClusterID(n.Data)
	if err != nil || id == d.ClusterID {
		return Finding{}, false
	}
	return Finding{
		Code: "log-dir-of-another-cluster", Severity: Error, Subject: d.Path,
		What:     fmt.Sprintf("Log dir %s belongs to another cluster.", d.Path),
		Evidence: []Evidence{v.see(coord.ClusterIDPath), {d.Path + "/meta.properties", "cluster.id=" + d.ClusterID}},
		Why:      "A broker does not start on it. Either this is not the ZooKeeper of the broker's cluster, or its chroot is another, or ZooKeeper's data was lost and begun anew.",
		Next:     "Compare zookeeper.connect of the broker with --zookeeper. Do not change meta.properties unless you know that the cluster's state was lost.",
	}, true
}

// directories judges the replicas in a dir and what is left of others.
func (v *view) directories(d *LogDir) []Finding {
	var deleted, strays, former, moving []Evidence
	var old time.Duration
	var deletedBytes, strayBytes int64
	for _, e := range d.Entries {
		tp, kind, ok := kindOf(e.Name)
		seen := Evidence{d.Path + "/" + e.Name, fmt.Sprintf("%d bytes", e.Bytes)}
		t := v.topics[tp.Topic]
		switch {
		case !ok:
		case kind == "delete":
			deleted, deletedBytes = append(deleted, seen), deletedBytes+e.Bytes
			old = max(old, v.taken.Sub(e.Changed))
		case kind == "stray", !v.belongs(tp, d.Broker):
			strays, strayBytes = append(strays, seen), strayBytes+e.Bytes
		case t.decoded && !t.id.IsZero() && !e.TopicID.IsZero() && e.TopicID != t.id:
			former = append(former, Evidence{seen.Where, "topic id " + e.TopicID.String()}, Evidence{t.node.Path, "topic id " + t.id.String()})
		case kind == "future":
			moving = append(moving, seen)
		}
	}
	var out []Finding
	if deleted != nil {
		out = append(out, v.deletedDirectories(d, deleted, deletedBytes, old))
	}
	if strays != nil {
		out = append(out, Finding{
			Code: "stray-directories", Severity: Warning, Subject: d.Path,
			What:     fmt.Sprintf("Log dir %s of broker %d has %s that no assignment names, %d bytes.", d.Path, d.Broker, count(len(strays), "replica"), strayBytes),
			Evidence: strays,
			Why:      "They take space: what a reassignment or deletion left behind when the broker was down, or the topics' nodes were removed by hand.",
			Next:     fmt.Sprintf("Make sure that nobody wants the data. Then stop broker %d, move these directories away, and start it.", d.Broker),
		})
	}
	if former != nil {
		out = append(out, Finding{
			Code: "directories-of-former-topics", Severity: Error, Subject: d.Path,
			What:     fmt.Sprintf("Log dir %s of broker %d has replicas of former topics whose names are used again.", d.Path, d.Broker),
			Evidence: former,
			Why:      "The broker refuses to be a replica of the new topic as long as they are there (INCONSISTENT_TOPIC_ID), which Kafka's controller ignores.",
			Next:     fmt.Sprintf("Make sure that nobody wants the data. Then stop broker %d, move these directories away, and start it.", d.Broker),
		})
	}
	if moving != nil {
		out = append(out, Finding{
			Code: "replicas-moving", Severity: Info, Subject: d.Path,
			What:     fmt.Sprintf("%s on the way to log dir %s of broker %d.", either(len(moving), "A replica is", count(len(moving), "replica")+" are"), d.Path, d.Broker),
			Evidence: moving,
			Why:      "kafka-reassign-partitions moves replicas between log dirs.",
			Next:     "kafka-log-dirs shows how far they are (isFuture, offsetLag), while the broker runs.",
		})
	}
	return out
}

func (v *view) deletedDirectories(d *LogDir, seen []Evidence, bytes int64, old time.Duration) Finding {
	f := Finding{
		Code: "deleted-directories", Severity: Info, Subject: d.Path,
		What:     fmt.Sprintf("Log dir %s of broker %d has %s on its way out, %d bytes.", d.Path, d.Broker, either(len(seen), "a directory", strconv.Itoa(len(seen))+" directories"), bytes),
		Evidence: seen,
		Why:      "Replicas that were deleted are removed log.segment.delete.delay.ms later, by the broker.",
		Next:     "Look again in a minute.",
	}
	if old > removalGrace {
		f.Severity = Warning
		f.What = fmt.Sprintf("Log dir %s of broker %d has %s that should have been removed, the oldest %v ago, %d bytes.", d.Path, d.Broker, either(len(seen), "a directory", strconv.Itoa(len(seen))+" directories"), old.Round(time.Minute), bytes)
		f.Why = "Their replicas were deleted. A broker that is down removes them after its start; Kafka's does not try again when a removal failed, until its next start."
		f.Next = fmt.Sprintf("Is broker %d up? Does its log tell of a failed removal? Mend what that says (rights, a mount) and restart it; or remove these directories by hand, nothing refers to them.", d.Broker)
	}
	return f
}
