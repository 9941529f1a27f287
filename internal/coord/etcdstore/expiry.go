package etcdstore

import (
	"context"
	"fmt"
	"reflect"
	"time"
	"unsafe"

	"go.etcd.io/etcd/server/v3/etcdserver"
	"go.etcd.io/etcd/server/v3/lease"
)

// checkedLessor is etcd's lessor with another rule for when the leases that have run out are ended: only once a majority has
// confirmed that this member still leads.
//
// etcd asks its peers only if its own clock has not ticked for three ticks (EtcdServer.ensureLeadership in 3.7). When a leader
// wakes up that was frozen for longer than a session, by a paused virtual machine or SIGSTOP, the clock ticks first, all
// leases look expired, as the others renewed theirs at the leader that came after, and the orders to revoke them are
// passed on to that leader, which obeys: every broker of the cluster loses its session at once.
type checkedLessor struct {
	lease.Lessor
	expired chan []*lease.Lease
}

// confirmTimeout bounds one question to the peers, confirmPause is waited before the next.
const (
	confirmTimeout = 2 * time.Second
	confirmPause   = 50 * time.Millisecond
)

// ExpiredLeasesC implements lease.Lessor.
func (l *checkedLessor) ExpiredLeasesC() <-chan []*lease.Lease { return l.expired }

// run passes expired leases on until ctx ends. leads reports whether this member is the leader, as far as it knows; confirm
// asks a majority.
func (l *checkedLessor) run(ctx context.Context, leads func() bool, confirm func(context.Context) error) {
	for {
		var expired []*lease.Lease
		select {
		case expired = <-l.Lessor.ExpiredLeasesC():
		case <-ctx.Done():
			return
		}
		if !confirmed(ctx, leads, confirm) {
			continue
		}
		select {
		case l.expired <- expired:
		case <-ctx.Done():
			return
		}
	}
}

// confirmed asks until there is an answer or this member leads no more.
func confirmed(ctx context.Context, leads func() bool, confirm func(context.Context) error) bool {
	for leads() {
		try, cancel := context.WithTimeout(ctx, confirmTimeout)
		err := confirm(try)
		cancel()
		if err == nil {
			return leads() // what a majority knows by now, this member has heard
		}
		if pause(ctx, confirmPause) != nil {
			return false
		}
	}
	return false
}

// checkExpiry puts a checkedLessor into a server that was not started yet, and returns what runs beside it. etcd has no
// setting for it: the field is found by its name, which a test watches over.
func checkExpiry(s *etcdserver.EtcdServer) (run func(context.Context), err error) {
	field := reflect.ValueOf(s).Elem().FieldByName("lessor")
	if !field.IsValid() || field.Type() != reflect.TypeFor[lease.Lessor]() {
		return nil, fmt.Errorf("this version of etcd keeps its lessor elsewhere: %v", field)
	}
	lessor := (*lease.Lessor)(unsafe.Pointer(field.UnsafeAddr())) // #nosec G103: a field of that type, see above
	checked := &checkedLessor{Lessor: *lessor, expired: make(chan []*lease.Lease)}
	*lessor = checked
	leads := func() bool { return s.Leader() == s.MemberID() }
	return func(ctx context.Context) { checked.run(ctx, leads, s.LinearizableReadNotify) }, nil
}
