package etcdstore

import (
	"fmt"
	"slices"
	"time"

	"go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/api/v3/mvccpb"
	clientv3 "go.etcd.io/etcd/client/v3"

	"klamm/internal/coord"
)

// plan folds the operations of a Multi into one etcd transaction. etcd judges all conditions before the first write
// and refuses to write a key twice, so operations on one path become conditions on the state before the Multi and at
// most one write. Operations that contradict each other whatever that state is make the plan doomed: it only
// reads, to tell which operation fails first and why.
type plan struct {
	ops    []coord.Op
	paths  map[string]*pathPlan
	order  []*pathPlan // by first use
	doomed bool

	compares []clientv3.Cmp
	writes   []clientv3.Op
	written  []*pathPlan // the node that writes[i] writes; nil for a counter
	reads    []clientv3.Op
	readOf   []func(*snapshot, *etcdserverpb.RangeResponse)
}

// pathPlan is what a plan knows of one path: what must hold before, and how the operations so far left it.
type pathPlan struct {
	path    string
	created bool // by this plan: it must be absent before
	version int32
	exists  bool
	deleted bool
	sets    int32
	data    []byte
	ctime   time.Time
	session coord.Session

	stat coord.Stat // after the transaction
}

// makePlan folds operations whose sequential names are already chosen.
func makePlan(ops []coord.Op, now time.Time) *plan {
	p := &plan{ops: ops, paths: map[string]*pathPlan{}}
	for _, op := range ops {
		if op.Path == "/" {
			continue // only checked, and always there
		}
		if op.Kind == coord.OpCreate {
			p.planCreate(op, now)
		} else {
			p.planExisting(op)
		}
	}
	for _, n := range p.order {
		p.finish(n)
	}
	return p
}

func (p *plan) use(path string) (n *pathPlan, first bool) {
	n = p.paths[path]
	if n != nil {
		return n, false
	}
	n = &pathPlan{path: path, version: coord.AnyVersion}
	p.paths[path] = n
	p.order = append(p.order, n)
	return n, true
}

func (p *plan) planCreate(op coord.Op, now time.Time) {
	p.requireParent(coord.ParentPath(op.Path))
	n, first := p.use(op.Path)
	p.doomed = p.doomed || !first
	n.created, n.exists, n.version = true, true, 0
	n.data, n.session = op.Data, op.Session
	if op.Sequential {
		n.ctime = now
	}
}

// requireParent demands that the parent exists and is not ephemeral.
func (p *plan) requireParent(parent string) {
	p.readNode(parent)
	if parent == "/" {
		return
	}
	if n := p.paths[parent]; n != nil && n.created {
		p.doomed = p.doomed || !n.exists || n.session != nil
		return
	} else if n != nil && !n.exists {
		p.doomed = true
	}
	p.compares = append(p.compares,
		clientv3.Compare(clientv3.CreateRevision(nodeKey(parent)), ">", 0),
		clientv3.Compare(clientv3.LeaseValue(nodeKey(parent)), "=", 0))
}

// planExisting folds a Set, Delete or Check.
func (p *plan) planExisting(op coord.Op) {
	n, first := p.use(op.Path)
	n.exists = n.exists || first
	p.doomed = p.doomed || !n.exists
	if op.Version != coord.AnyVersion {
		before := op.Version - n.sets
		p.doomed = p.doomed || before < 0 || n.version != coord.AnyVersion && n.version != before
		n.version = before
	}
	switch op.Kind {
	case coord.OpSet:
		n.sets++
		n.data, n.ctime = op.Data, time.Time{}
	case coord.OpDelete:
		p.planDelete(n)
	}
}

// planDelete demands that the node has no children but those this plan deletes.
func (p *plan) planDelete(n *pathPlan) {
	n.exists, n.deleted = false, true
	var gone []string
	for _, c := range p.order {
		if coord.ParentPath(c.path) != n.path {
			continue
		}
		p.doomed = p.doomed || c.exists && c.created
		if !c.exists {
			gone = append(gone, nodeKey(c.path))
		}
	}
	slices.Sort(gone)
	all := childRange(n.path)
	for _, r := range all.exceptKeys(gone) {
		p.compares = append(p.compares, clientv3.Compare(clientv3.CreateRevision(r.begin).WithRange(r.end), "=", 0))
	}
	p.readOps(clientv3.OpGet(all.begin, all.option(), clientv3.WithKeysOnly(), clientv3.WithLimit(int64(len(gone)+1))),
		func(s *snapshot, r *etcdserverpb.RangeResponse) {
			for _, kv := range r.Kvs {
				s.add(pathOfKey(kv.Key), kv)
			}
		})
}

// finish adds the condition and the write of a path.
func (p *plan) finish(n *pathPlan) {
	p.readNode(n.path)
	key := nodeKey(n.path)
	if n.created {
		p.compares = append(p.compares, clientv3.Compare(clientv3.CreateRevision(key), "=", 0))
	} else {
		p.compares = append(p.compares, compareVersion(n.path, n.version))
	}
	switch {
	case n.created && n.exists:
		var opts []clientv3.OpOption
		if n.session != nil {
			opts = append(opts, clientv3.WithLease(clientv3.LeaseID(n.session.ID())))
		}
		p.write(n, clientv3.OpPut(key, encodeValue(n.data, n.ctime), opts...))
	case n.deleted && !n.created:
		p.write(n, clientv3.OpDelete(key))
	case n.exists && n.sets > 0:
		// A plain put would take the lease away from an ephemeral node.
		p.write(n, clientv3.OpPut(key, encodeValue(n.data, n.ctime), clientv3.WithIgnoreLease(), clientv3.WithPrevKV()))
	}
}

func (p *plan) write(n *pathPlan, op clientv3.Op) {
	p.writes = append(p.writes, op)
	p.written = append(p.written, n)
}

func (p *plan) readNode(path string) {
	if path == "/" {
		return
	}
	// Not keys only: etcd then leaves out the lease.
	p.readOps(clientv3.OpGet(nodeKey(path)), func(s *snapshot, r *etcdserverpb.RangeResponse) {
		for _, kv := range r.Kvs {
			s.add(path, kv)
		}
	})
}

func (p *plan) readOps(op clientv3.Op, take func(*snapshot, *etcdserverpb.RangeResponse)) {
	p.reads = append(p.reads, op)
	p.readOf = append(p.readOf, take)
}

// guard makes the plan hold only while the guard does; its read comes first.
func (p *plan) guard(g *coord.Guard) {
	if g == nil {
		return
	}
	p.compares = append(p.compares, guardCompares(g)...)
	p.readNode(g.Path)
}

// txn is the transaction of the plan. A doomed plan reads in both branches.
func (p *plan) txn() clientv3.Op {
	if p.doomed {
		return clientv3.OpTxn(nil, p.reads, nil)
	}
	return clientv3.OpTxn(p.compares, p.writes, p.reads)
}

// results are those of an applied plan.
func (p *plan) results(responses []*etcdserverpb.ResponseOp, revision int64) []coord.OpResult {
	for i, n := range p.written {
		if n == nil || !n.exists {
			continue
		}
		if n.created {
			n.stat = coord.Stat{Czxid: revision, Mzxid: revision, Ctime: n.ctime}
			if n.session != nil {
				n.stat.EphemeralOwner = n.session.ID()
			}
			continue
		}
		n.stat = statOf(responses[i].GetResponsePut().PrevKv)
		n.stat.Mzxid = revision
		n.stat.Version++
	}
	out := make([]coord.OpResult, len(p.ops))
	for i, op := range p.ops {
		out[i].Path = op.Path
		if op.Kind == coord.OpCreate || op.Kind == coord.OpSet {
			out[i].Stat = p.paths[op.Path].stat
		}
	}
	return out
}

// snapshot is the part of the tree that a plan touches, as it was when the plan was refused.
type snapshot struct {
	nodes         map[string]*mvccpb.KeyValue
	countersMoved bool // since the numbers of sequential nodes were chosen
}

func (s *snapshot) add(path string, kv *mvccpb.KeyValue) { s.nodes[path] = kv }

// holds tells whether the guard did when the plan was refused.
func (s *snapshot) holds(guard *coord.Guard) bool {
	if guard == nil {
		return true
	}
	kv := s.nodes[guard.Path]
	return kv != nil && kv.Version-1 == int64(guard.Version)
}

func (p *plan) snapshot(responses []*etcdserverpb.ResponseOp) *snapshot {
	s := &snapshot{nodes: map[string]*mvccpb.KeyValue{}}
	for i, take := range p.readOf {
		take(s, responses[i].GetResponseRange())
	}
	return s
}

// failure runs the operations on the snapshot and returns the first that fails.
func (p *plan) failure(s *snapshot) (int, error) {
	deleted := map[string]bool{}
	for i, op := range p.ops {
		if err := s.apply(op, deleted); err != nil {
			return i, err
		}
	}
	return 0, nil
}

// apply runs one operation on the snapshot as the engine would run it alone.
func (s *snapshot) apply(op coord.Op, deleted map[string]bool) error {
	if op.Kind == coord.OpCreate {
		return s.applyCreate(op, deleted)
	}
	kv := s.nodes[op.Path]
	if op.Path == "/" {
		kv = &mvccpb.KeyValue{Version: 1}
	}
	switch {
	case kv == nil:
		return coord.ErrNoNode
	case op.Version != coord.AnyVersion && int64(op.Version) != kv.Version-1:
		return coord.ErrBadVersion
	}
	switch op.Kind {
	case coord.OpSet:
		s.add(op.Path, &mvccpb.KeyValue{Version: kv.Version + 1, Lease: kv.Lease})
	case coord.OpDelete:
		for path := range s.nodes {
			if path != "/" && coord.ParentPath(path) == op.Path {
				return coord.ErrNotEmpty
			}
		}
		delete(s.nodes, op.Path)
		deleted[op.Path] = true
	}
	return nil
}

func (s *snapshot) applyCreate(op coord.Op, deleted map[string]bool) error {
	if parent := coord.ParentPath(op.Path); parent != "/" {
		switch kv := s.nodes[parent]; {
		case kv == nil:
			return coord.ErrNoNode
		case kv.Lease != 0:
			return coord.ErrNoEphemeralChildren
		}
	}
	switch {
	case deleted[op.Path]:
		return coord.ErrRecreated
	case s.nodes[op.Path] != nil:
		return coord.ErrNodeExists
	}
	kv := &mvccpb.KeyValue{Version: 1}
	if op.Session != nil {
		kv.Lease = op.Session.ID()
	}
	s.add(op.Path, kv)
	return nil
}

// validate refuses operations that no state of the tree allows.
func validate(op coord.Op, inBatch bool) error {
	switch {
	case !coord.ValidPath(op.Path) || coord.Depth(op.Path) > depthMax:
		return coord.ErrInvalidPath
	case op.Path == "/" && op.Kind != coord.OpCheck:
		return coord.ErrInvalidPath
	case op.Kind == coord.OpCheck && inBatch:
		return fmt.Errorf("check is not for batches")
	case op.Session != nil:
		select {
		case <-op.Session.Done():
			return coord.ErrSessionExpired
		default:
		}
	}
	return nil
}
