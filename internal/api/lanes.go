package api

import (
	"context"
	"log/slog"
	"runtime/debug"
	"sync"

	"klamm/internal/wire"
)

// lanes runs jobs that may wait for the coordination store on a fixed number of workers, so that a connection's reader
// never waits for it. The jobs of one connection run one after another in their order: a client that pipelines "create"
// and "alter" gets what it would get from Kafka, which handles one request of a connection at a time.
//
// At most lanesJobsMax jobs wait; then submit blocks, which stops reading on the connections that ask for more.
//
// Locks: mu guards the fields beside it and is held for no job and no channel operation that could block.
type lanes struct {
	log   *slog.Logger
	slots chan struct{} // one per job that waits or runs
	ready chan *lane    // lanes with jobs and no worker; as many slots as there can be jobs, so sending never blocks
	over  chan struct{} // closed when Run has ended

	mu     sync.Mutex
	byConn map[*wire.Conn]*lane
}

// lane is the queue of one connection. It is in byConn, and in ready or with a worker, exactly while it has jobs.
type lane struct {
	conn *wire.Conn
	jobs []laneJob // guarded by lanes.mu
}

type laneJob struct {
	request *wire.Request
	run     func(ctx context.Context)
}

const lanesJobsMax = 1024

func newLanes(log *slog.Logger) *lanes {
	return &lanes{
		log:    log,
		slots:  make(chan struct{}, lanesJobsMax),
		ready:  make(chan *lane, lanesJobsMax),
		over:   make(chan struct{}),
		byConn: map[*wire.Conn]*lane{},
	}
}

// submit queues a job behind the others of the request's connection. It blocks while too many jobs wait, but not longer
// than the connection lives. After the end the job runs at once with a context that is over, so that its request is
// answered all the same.
func (l *lanes) submit(ctx context.Context, r *wire.Request, run func(ctx context.Context)) {
	select {
	case l.slots <- struct{}{}:
	case <-ctx.Done():
		r.Close("connection ended while its request waited", nil)
		return
	case <-l.over:
		l.runAfterEnd(laneJob{r, run})
		return
	}
	l.mu.Lock()
	q := l.byConn[r.Conn]
	isNew := q == nil
	if isNew {
		q = &lane{conn: r.Conn}
		l.byConn[r.Conn] = q
	}
	q.jobs = append(q.jobs, laneJob{r, run})
	l.mu.Unlock()
	if isNew {
		l.ready <- q
		l.drainAfterEnd()
	}
}

// run works with n workers until the context ends; jobs still waiting then run with the ended context.
func (l *lanes) run(ctx context.Context, n int) {
	var workers sync.WaitGroup
	for range n {
		workers.Go(func() {
			for {
				select {
				case q := <-l.ready:
					l.runFirst(ctx, q)
				case <-ctx.Done():
					return
				}
			}
		})
	}
	workers.Wait()
	close(l.over)
	l.drainAfterEnd()
}

// drainAfterEnd runs what is left once the workers are gone. A submit that raced with the end does it for its own job.
func (l *lanes) drainAfterEnd() {
	select {
	case <-l.over:
	default:
		return
	}
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	for {
		select {
		case q := <-l.ready:
			l.runFirst(ctx, q)
		default:
			return
		}
	}
}

func (l *lanes) runAfterEnd(j laneJob) {
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	l.runJob(ctx, j)
}

// runFirst runs the lane's first job and puts the lane back if it has more.
func (l *lanes) runFirst(ctx context.Context, q *lane) {
	l.mu.Lock()
	j := q.jobs[0]
	l.mu.Unlock()
	l.runJob(ctx, j)
	l.mu.Lock()
	q.jobs = q.jobs[1:]
	more := len(q.jobs) > 0
	if !more {
		delete(l.byConn, q.conn)
	}
	l.mu.Unlock()
	<-l.slots
	if more {
		l.ready <- q
	}
}

// runJob is the connection's edge as wire's reader is: a handler's broken invariant costs one connection, not the broker.
func (l *lanes) runJob(ctx context.Context, j laneJob) {
	defer func() {
		if p := recover(); p != nil {
			l.log.Error("handler panicked", "api", j.request.Key, "version", j.request.Version, "client", j.request.ClientID,
				"err", p, "stack", string(debug.Stack()))
			j.request.Close("internal error", nil)
		}
	}()
	j.run(ctx)
}
