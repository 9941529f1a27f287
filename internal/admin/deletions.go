package admin

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"maps"
	"net/http"
	"net/url"
	"os"
	"os/signal"
	"slices"
	"strings"
	"syscall"
	"text/tabwriter"
	"time"
)

const deletionUsage = `Usage:
  klamm deletion list           every deletion that runs or waits, and what brokers have to remove when they, or their log dirs, are back
  klamm deletion why TOPIC      each replica of a topic that is being deleted, and what it waits for
  klamm deletion watch          list with the progress of each broker, again and again, until interrupted
Options, before or after the command:
  --web URL        the web address (web.listen) of any broker; default $KLAMM_WEB, else http://127.0.0.1:8080
  --interval 1s    how often watch looks
`

// The answers of the brokers' web API, as far as the tool shows them.
type (
	deletionInfo struct {
		Topic     string        `json:"topic"`
		TopicID   string        `json:"topicId"`
		Phase     string        `json:"phase"`
		QueuedAt  time.Time     `json:"queuedAt"`
		Attempts  int           `json:"attempts"`
		LastError string        `json:"lastError"`
		Reasons   []reasonInfo  `json:"reasons"`
		Replicas  []replicaInfo `json:"replicas"`
	}
	reasonInfo struct {
		WaitsFor string     `json:"waitsFor"`
		Broker   *int32     `json:"broker"`
		LiftedBy string     `json:"liftedBy"`
		RetryAt  *time.Time `json:"retryAt"`
		Detail   string     `json:"detail"`
	}
	replicaInfo struct {
		Partition int32       `json:"partition"`
		Broker    int32       `json:"broker"`
		State     string      `json:"state"`
		Since     time.Time   `json:"since"`
		Attempts  int         `json:"attempts"`
		LastError string      `json:"lastError"`
		WaitsFor  *reasonInfo `json:"waitsFor"`
	}
	leftoverInfo struct {
		Broker     int32     `json:"broker"`
		Topic      string    `json:"topic"`
		TopicID    string    `json:"topicId"`
		Partitions []int32   `json:"partitions"`
		Since      time.Time `json:"since"`
	}
)

type deletionTool struct {
	web         string
	interval    time.Duration
	stdout      io.Writer
	interactive bool
	now         func() time.Time
}

// DeletionMain is `klamm deletion`: it shows deletions of topics and why they wait, from any broker. Exit codes: 0 fine, 1
// failure, 2 usage.
func DeletionMain(ctx context.Context, args []string, stdout, stderr io.Writer) int {
	t := &deletionTool{stdout: stdout, now: time.Now}
	if f, ok := stdout.(*os.File); ok {
		t.interactive = isTerminal(f)
	}
	words, err := t.parse(args)
	if err != nil {
		fmt.Fprintf(stderr, "klamm deletion: %v\n\n%s", err, deletionUsage)
		return 2
	}
	ctx, stop := signal.NotifyContext(ctx, os.Interrupt, syscall.SIGTERM)
	defer stop()
	switch {
	case len(words) == 1 && words[0] == "help":
		fmt.Fprint(stdout, deletionUsage)
		return 0
	case len(words) == 1 && words[0] == "list":
		err = t.list(ctx)
	case len(words) == 1 && words[0] == "watch":
		err = t.watch(ctx)
	case len(words) == 2 && words[0] == "why":
		err = t.why(ctx, words[1])
	default:
		fmt.Fprintf(stderr, "klamm deletion: want list, why TOPIC or watch\n\n%s", deletionUsage)
		return 2
	}
	if err != nil {
		fmt.Fprintf(stderr, "klamm deletion: %v\n", err)
		return 1
	}
	return 0
}

// parse reads options wherever they stand and returns the other words.
func (t *deletionTool) parse(args []string) (words []string, err error) {
	flags := flag.NewFlagSet("deletion", flag.ContinueOnError)
	flags.SetOutput(io.Discard)
	flags.StringVar(&t.web, "web", cmp.Or(os.Getenv("KLAMM_WEB"), "http://127.0.0.1:8080"), "")
	flags.DurationVar(&t.interval, "interval", time.Second, "")
	for len(args) > 0 {
		if err := flags.Parse(args); errors.Is(err, flag.ErrHelp) {
			return []string{"help"}, nil
		} else if err != nil {
			return nil, err
		}
		if args = flags.Args(); len(args) > 0 {
			words, args = append(words, args[0]), args[1:]
		}
	}
	t.web = webURL(t.web)
	if t.interval <= 0 {
		return nil, fmt.Errorf("--interval %v: want more than nothing", t.interval)
	}
	return words, nil
}

func (t *deletionTool) get(ctx context.Context, path string, into any) error {
	ctx, cancel := context.WithTimeout(ctx, 10*time.Second)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, t.web+path, http.NoBody)
	if err != nil {
		return err
	}
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		return fmt.Errorf("%w; --web is the web.listen address of a broker", err)
	}
	defer func() { _ = resp.Body.Close() }()
	if resp.StatusCode != http.StatusOK {
		var answer struct {
			Error string `json:"error"`
		}
		if json.NewDecoder(resp.Body).Decode(&answer) != nil || answer.Error == "" {
			answer.Error = resp.Status
		}
		return errors.New(answer.Error)
	}
	return json.NewDecoder(resp.Body).Decode(into)
}

func (t *deletionTool) list(ctx context.Context) error {
	text, err := t.table(ctx, false)
	if err == nil {
		fmt.Fprint(t.stdout, text)
	}
	return err
}

// table prints what list shows, and for watch the progress of the replicas below it.
func (t *deletionTool) table(ctx context.Context, progress bool) (string, error) {
	var ds []deletionInfo
	var left []leftoverInfo
	if err := errors.Join(t.get(ctx, "/api/v1/deletions", &ds), t.get(ctx, "/api/v1/leftovers", &left)); err != nil {
		return "", err
	}
	var out strings.Builder
	if len(ds) == 0 {
		fmt.Fprintln(&out, "No topic is being deleted.")
	} else {
		w := tabwriter.NewWriter(&out, 0, 0, 2, ' ', 0)
		fmt.Fprintln(w, "TOPIC\tPHASE\tFOR\tDELETED\tATTEMPTS\tWAITS FOR")
		for _, d := range ds {
			fmt.Fprintf(w, "%s\t%s\t%s\t%d of %d\t%d\t%s\n", d.Topic, d.Phase, t.age(d.QueuedAt), d.deleted(), len(d.Replicas), d.Attempts, d.reasons())
		}
		_ = w.Flush() // to a builder
		if progress {
			t.progress(&out, ds)
		}
	}
	for _, l := range left {
		fmt.Fprintf(&out, "Broker %d has %s of %s (id %s) to remove when it, or their log dir, is back; for %s now.\n", l.Broker, replicas(len(l.Partitions)), l.Topic, l.TopicID, t.age(l.Since))
	}
	return out.String(), nil
}

// brokerProgress is how far one broker is with the replicas of one topic.
type brokerProgress struct {
	topic          string
	broker         int32
	all, deleted   int
	state          string // of the replica that has been in it longest, of those to be deleted
	since          time.Time
	attempts       int // most of one replica
	lastError, why string
}

// progress shows, per topic and broker, the replicas that are still to be deleted.
func (t *deletionTool) progress(out io.Writer, ds []deletionInfo) {
	w := tabwriter.NewWriter(out, 0, 0, 2, ' ', 0)
	fmt.Fprintln(w, "\nTOPIC\tBROKER\tDELETED\tSTATE\tFOR\tATTEMPTS\tLAST ERROR\tWAITS FOR")
	for i := range ds {
		for _, p := range ds[i].progress() {
			fmt.Fprintf(w, "%s\t%d\t%d of %d\t%s\t%s\t%d\t%s\t%s\n", p.topic, p.broker, p.deleted, p.all, p.state, t.age(p.since), p.attempts, cmp.Or(p.lastError, "-"), p.why)
		}
	}
	_ = w.Flush() // to a builder
}

// progress lists the brokers that have replicas to delete, by id.
func (d *deletionInfo) progress() []brokerProgress {
	byBroker := map[int32]*brokerProgress{}
	for _, r := range d.Replicas {
		p := byBroker[r.Broker]
		if p == nil {
			p = &brokerProgress{topic: d.Topic, broker: r.Broker}
			byBroker[r.Broker] = p
		}
		p.all++
		if r.WaitsFor == nil {
			p.deleted++
			continue
		}
		if p.state == "" || r.Since.Before(p.since) {
			p.state, p.since, p.why = r.State, r.Since, r.WaitsFor.WaitsFor
		}
		p.attempts = max(p.attempts, r.Attempts)
		p.lastError = cmp.Or(p.lastError, r.LastError)
	}
	var out []brokerProgress
	for _, id := range slices.Sorted(maps.Keys(byBroker)) {
		if p := byBroker[id]; p.deleted < p.all {
			out = append(out, *p)
		}
	}
	return out
}

func (d *deletionInfo) deleted() (n int) {
	for _, r := range d.Replicas {
		if r.WaitsFor == nil {
			n++
		}
	}
	return n
}

func (d *deletionInfo) reasons() string {
	var all []string
	for _, r := range d.Reasons {
		all = append(all, r.String())
	}
	return strings.Join(all, "; ")
}

// String gives a reason on one line.
func (r *reasonInfo) String() string {
	s := r.WaitsFor
	if r.Broker != nil {
		s = fmt.Sprintf("broker %d: %s", *r.Broker, s)
	}
	if r.Detail != "" {
		s += " (" + r.Detail + ")"
	}
	return s
}

func replicas(n int) string {
	if n == 1 {
		return "1 replica"
	}
	return fmt.Sprint(n, " replicas")
}

func (t *deletionTool) age(since time.Time) string {
	return max(0, t.now().Sub(since)).Round(time.Second).String()
}

func (t *deletionTool) why(ctx context.Context, topic string) error {
	var d deletionInfo
	if err := t.get(ctx, "/api/v1/topics/"+url.PathEscape(topic)+"/deletion", &d); err != nil {
		return err
	}
	fmt.Fprintf(t.stdout, "Topic %s (id %s): %s, for %s, %d failed attempts.\n", d.Topic, cmp.Or(d.TopicID, "none"), d.Phase, t.age(d.QueuedAt), d.Attempts)
	if d.LastError != "" {
		fmt.Fprintf(t.stdout, "Last error: %s\n", d.LastError)
	}
	for _, r := range d.Reasons {
		fmt.Fprintf(t.stdout, "Waits: %s. Lifted by: %s.", r.String(), r.LiftedBy)
		if r.RetryAt != nil {
			fmt.Fprintf(t.stdout, " Goes on by itself in %s.", max(0, r.RetryAt.Sub(t.now())).Round(time.Second))
		}
		fmt.Fprintln(t.stdout)
	}
	w := tabwriter.NewWriter(t.stdout, 0, 0, 2, ' ', 0)
	fmt.Fprintln(w, "PARTITION\tBROKER\tSTATE\tFOR\tATTEMPTS\tLAST ERROR\tWAITS FOR")
	for _, r := range d.Replicas {
		waits := "-"
		if r.WaitsFor != nil {
			waits = r.WaitsFor.WaitsFor
		}
		fmt.Fprintf(w, "%d\t%d\t%s\t%s\t%d\t%s\t%s\n", r.Partition, r.Broker, r.State, t.age(r.Since), r.Attempts, cmp.Or(r.LastError, "-"), waits)
	}
	return w.Flush()
}

// watch shows the table until it is interrupted. A broker that does not answer, and a change of controllers, are shown
// and outlived.
func (t *deletionTool) watch(ctx context.Context) error {
	tick := time.NewTicker(t.interval)
	defer tick.Stop()
	last := ""
	for {
		text, err := t.table(ctx, true)
		if ctx.Err() != nil {
			return nil
		}
		if err != nil {
			text = fmt.Sprintf("No answer, trying again: %v\n", err)
		}
		switch {
		case t.interactive:
			fmt.Fprintf(t.stdout, "\x1b[H\x1b[2J%s  %s\n\n%s", t.now().Format(time.TimeOnly), t.web, text)
		case text != last:
			fmt.Fprint(t.stdout, text)
		}
		last = text
		select {
		case <-ctx.Done():
			return nil
		case <-tick.C:
		}
	}
}
