package sim

// Every deletion and every reassignment ends when its brokers are back, and so does what old tools asked for.

func (k *checks) everythingEnded() {
	s := k.w.store
	for name := range s.markers {
		k.w.failf("topic %s is still marked for deletion", name)
	}
	if s.preferred != nil {
		k.w.failf("the request for preferred elections is left: %v", s.preferred)
	}
	if s.reassign != nil {
		k.w.failf("the request for reassignments is left: %v", s.reassign)
	}
	for name, t := range s.topics {
		for p, a := range t.partitions {
			if a.BeingReassigned() {
				k.w.failf("the reassignment of %s-%d has not ended: %v", name, p, a)
			}
		}
	}
	if len(s.logDirEvents) > 0 || len(s.isrChanges) > 0 {
		k.w.failf("notifications are left: %v %v", s.logDirEvents, s.isrChanges)
	}
}
