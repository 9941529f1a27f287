package replica

import (
	"context"
	"errors"
	"maps"
	"math"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"klamm/internal/cluster"
	"klamm/internal/commitlog"
)

// moveStep is how many bytes of one replica are copied before the next one has its turn.
const moveStep = 1 << 20

// Pauses after a step that failed.
const (
	moveRetryFirst = time.Second
	moveRetryMax   = 5 * time.Minute
)

// logDirMoves copies replicas to other log dirs of this broker and puts the copies in their place (Kafka: ReplicaAlterLogDirsManager).
// A few workers take turns at the replicas on the move. It is told of changes under Manager.control.
type logDirMoves struct {
	m       *Manager
	workers int
	rate    func() int64 // bytes per second, math.MaxInt64 for no limit
	wake    chan struct{}
	failed  atomic.Int64 // steps

	mu struct {
		sync.Mutex
		byTP  map[cluster.TopicPartition]*logDirMove
		queue []*logDirMove // in turn; those that a worker has in hand are not in it
		idle  *sync.Cond    // a step has ended
		paced time.Time     // when the rate allows the next step
	}
}

// logDirMove is one replica on the move. Guarded by logDirMoves.mu, but for mv, which belongs to the worker that has it in hand.
type logDirMove struct {
	p        *Partition
	from, to *commitlog.Log
	mv       *commitlog.Move // nil before the first step and after one that failed
	began    time.Time
	inStep   bool
	gone     bool
	failures int
	due      time.Time
}

func newLogDirMoves(m *Manager, workers int, rate func() int64) *logDirMoves {
	w := &logDirMoves{m: m, workers: workers, rate: rate, wake: make(chan struct{}, 1)}
	w.mu.byTP = map[cluster.TopicPartition]*logDirMove{}
	w.mu.idle = sync.NewCond(&w.mu)
	return w
}

func (w *logDirMoves) run(ctx context.Context) {
	var all sync.WaitGroup
	for range w.workers {
		all.Go(func() { w.work(ctx) })
	}
	all.Wait()
}

func (w *logDirMoves) work(ctx context.Context) {
	for ctx.Err() == nil {
		x, wait := w.next(time.Now())
		if x != nil {
			w.signal() // there may be work for another one
			w.step(x)
			continue
		}
		t := time.NewTimer(wait)
		select {
		case <-ctx.Done():
		case <-w.wake:
		case <-t.C:
		}
		t.Stop()
	}
}

func (w *logDirMoves) signal() {
	select {
	case w.wake <- struct{}{}:
	default:
	}
}

// next gives the replica whose turn it is, or how long to wait.
func (w *logDirMoves) next(now time.Time) (*logDirMove, time.Duration) {
	w.mu.Lock()
	defer w.mu.Unlock()
	wait := time.Hour
	if pause := w.mu.paced.Sub(now); pause > 0 && len(w.mu.queue) > 0 {
		return nil, pause
	}
	for i, x := range w.mu.queue {
		if pause := x.due.Sub(now); pause > 0 {
			wait = min(wait, pause)
			continue
		}
		w.mu.queue = slices.Delete(w.mu.queue, i, i+1)
		x.inStep = true
		return x, 0
	}
	return nil, wait
}

// add starts the move of a partition's log to its future. control is held.
func (w *logDirMoves) add(p *Partition, from, to *commitlog.Log) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.mu.byTP[p.tp] != nil {
		return
	}
	x := &logDirMove{p: p, from: from, to: to, began: time.Now()}
	w.mu.byTP[p.tp] = x
	w.mu.queue = append(w.mu.queue, x)
	w.signal()
}

// remove ends moves, after the step that may be under way. The copies stay. control is held.
func (w *logDirMoves) remove(tps []cluster.TopicPartition) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if len(w.mu.byTP) == 0 {
		return
	}
	for _, tp := range tps {
		x := w.mu.byTP[tp]
		if x == nil {
			continue
		}
		x.gone = true
		delete(w.mu.byTP, tp)
		w.mu.queue = slices.DeleteFunc(w.mu.queue, func(y *logDirMove) bool { return y == x })
		for x.inStep {
			w.mu.idle.Wait()
		}
	}
}

// step copies one piece of a replica, or ends its move.
func (w *logDirMoves) step(x *logDirMove) {
	n, complete, err := x.copyPiece()
	w.mu.Lock()
	x.inStep = false
	w.mu.idle.Broadcast()
	gone := x.gone
	if rate := w.rate(); n > 0 && rate < math.MaxInt64 {
		w.mu.paced = later(w.mu.paced, time.Now()).Add(time.Duration(float64(n) / float64(max(rate, 1)) * float64(time.Second)))
	}
	w.mu.Unlock()
	if err == nil && complete && !gone {
		err = w.finish(x)
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	switch {
	case x.gone:
	case commitlog.Code(err) == cluster.KafkaStorageError && !x.canGoOn(), commitlog.Code(err) == cluster.UnknownTopicOrPartition:
		w.dropLocked(x) // a dir failed, or the replica is being deleted
	case err != nil:
		w.failed.Add(1)
		x.mv = nil
		x.due = time.Now().Add(min(moveRetryFirst<<min(x.failures, 20), moveRetryMax))
		x.failures++
		w.mu.queue = append(w.mu.queue, x)
		w.m.log.Error("replica not moved to another log dir, trying again", "topic", x.p.tp.Topic, "partition", x.p.tp.Partition,
			"from", x.from.Dir(), "to", x.to.Dir(), "err", err)
	default:
		x.failures = 0
		w.mu.queue = append(w.mu.queue, x)
	}
}

func (x *logDirMove) canGoOn() bool {
	logs := x.p.env.logs
	return logs.CheckDir(x.from.Dir()) == nil && logs.CheckDir(x.to.Dir()) == nil
}

func (w *logDirMoves) dropLocked(x *logDirMove) {
	x.gone = true
	if w.mu.byTP[x.p.tp] == x {
		delete(w.mu.byTP, x.p.tp)
	}
}

// copyPiece copies one piece; complete tells that so little is left that it may be copied while appends wait.
func (x *logDirMove) copyPiece() (n int, complete bool, err error) {
	if x.mv == nil {
		if x.mv, err = commitlog.NewMove(x.from, x.to); err != nil {
			return 0, false, err
		}
	}
	n, done, err := x.mv.Step(moveStep)
	if err != nil || !done {
		return n, false, err
	}
	if err := x.mv.Flush(); err != nil {
		return 0, false, err
	}
	n, _, err = x.mv.Step(moveStep)
	return n, n < moveStep, err
}

// finish puts the copy in the replica's place, unless the move was ended meanwhile. Appends to the partition and reads of it wait.
func (w *logDirMoves) finish(x *logDirMove) error {
	m := w.m
	m.control.Lock()
	defer m.control.Unlock()
	w.mu.Lock()
	gone := x.gone
	w.mu.Unlock()
	if gone {
		return nil
	}
	if err := x.p.exchangeLog(x); err != nil {
		return err
	}
	w.mu.Lock()
	w.dropLocked(x)
	w.mu.Unlock()
	m.log.Info("replica moved to another log dir", "topic", x.p.tp.Topic, "partition", x.p.tp.Partition, "from", x.from.Dir(), "to", x.to.Dir(),
		"bytes", x.to.Size(), "duration", time.Since(x.began))
	m.wakeAll(x.p.tp) // what waited knows positions in the old files
	return nil
}

func (p *Partition) exchangeLog(x *logDirMove) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.mu.closed || p.mu.log != x.from {
		return errNotFollowing
	}
	err := x.mv.Finish()
	if current, ok := p.env.logs.Get(p.tp); ok && current == x.to {
		p.mu.log = current
		return nil
	}
	return err
}

// gauges are the replicas on the move, the largest number of messages one of them is behind, and how many wait after a failure.
func (w *logDirMoves) gauges() (moving int, maxLag int64, failed int) {
	w.mu.Lock()
	all := slices.Collect(maps.Values(w.mu.byTP))
	for _, x := range all {
		if x.failures > 0 {
			failed++
		}
	}
	w.mu.Unlock()
	for _, x := range all {
		maxLag = max(maxLag, x.from.LogEndOffset()-x.to.LogEndOffset())
	}
	return len(all), maxLag, failed
}

// ReplicaLogDir names the log dir that a replica is to lie in.
type ReplicaLogDir struct {
	TP  cluster.TopicPartition
	Dir string // absolute path, as in log.dirs
}

// AlterReplicaLogDirs starts to move replicas to other log dirs of this broker, one code for each (KIP-113, Kafka:
// ReplicaManager.alterReplicaLogDirs). A move that is under way to another dir is given up; one to the dir where the replica lies ends there.
// For a partition that is not hosted here the dir is remembered, in case it comes, and the code is REPLICA_NOT_AVAILABLE.
func (m *Manager) AlterReplicaLogDirs(want []ReplicaLogDir) []cluster.ErrorCode {
	codes := make([]cluster.ErrorCode, len(want))
	m.control.Lock()
	defer m.control.Unlock()
	for i, r := range want {
		code, err := m.alterReplicaLogDirLocked(r)
		if codes[i] = code; code != cluster.None {
			m.log.Warn("replica not moved to another log dir", "topic", r.TP.Topic, "partition", r.TP.Partition, "to", r.Dir, "code", code, "err", err)
		}
	}
	return codes
}

func (m *Manager) alterReplicaLogDirLocked(r ReplicaLogDir) (cluster.ErrorCode, error) {
	if cluster.ValidateTopicName(r.TP.Topic) != nil || !commitlog.MaxMovableName(r.TP) {
		return cluster.InvalidTopicException, errors.New("the topic name is not valid, or too long for the name of a copy")
	}
	if err := m.logs.CheckDir(r.Dir); err != nil {
		return commitlog.Code(err), err
	}
	p, state := m.Partition(r.TP)
	if state == HostedOffline {
		return cluster.KafkaStorageError, errors.New("the replica is offline")
	}
	var log *commitlog.Log
	if p != nil {
		log = p.Log()
	}
	if log == nil {
		if !m.logs.PreferDir(r.TP, r.Dir) {
			return cluster.ReplicaNotAvailable, errors.New("too many dirs were named for replicas that do not exist: this one is not remembered")
		}
		return cluster.ReplicaNotAvailable, errors.New("no replica here; should one come it will lie in that dir")
	}
	return m.moveLogLocked(p, log, r.Dir)
}

func (m *Manager) moveLogLocked(p *Partition, log *commitlog.Log, dir string) (cluster.ErrorCode, error) {
	if future, moving := m.logs.Future(p.tp); moving && future.Dir() != dir {
		m.moves.remove([]cluster.TopicPartition{p.tp})
		if err := m.logs.DropFuture(p.tp); err != nil {
			return commitlog.Code(err), err
		}
	}
	if log.Dir() == dir {
		return cluster.None, nil
	}
	future, err := m.logs.CreateFuture(log, dir)
	if err != nil {
		return commitlog.Code(err), err
	}
	m.moves.add(p, log, future)
	return cluster.None, nil
}

// resumeMovesLocked goes on with the copies that a restart or a StopReplica request left. control is held.
func (m *Manager) resumeMovesLocked() {
	for _, future := range m.logs.Futures() {
		if p, _ := m.Partition(future.TopicPartition()); p != nil {
			if log := p.Log(); log != nil {
				m.moves.add(p, log, future)
			}
		}
	}
}
