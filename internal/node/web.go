package node

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/http/pprof"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus/promhttp"
)

// web serves health, metrics and the read-only API on web.listen. It changes nothing in the cluster.
type web struct {
	b     *broker
	addr  string // bound address; empty when web.listen is
	ready atomic.Bool
}

// bindWeb opens web.listen, if there is one, before the broker registers: the registration tells the address.
func (b *broker) bindWeb(ctx context.Context) error {
	if b.cfg.WebListen == "" {
		return nil
	}
	l, err := (&net.ListenConfig{}).Listen(ctx, "tcp", b.cfg.WebListen)
	if err != nil {
		return fmt.Errorf("web.listen=%s: %w; stop what uses the port, choose another, or leave web.listen empty", b.cfg.WebListen, err)
	}
	b.webListener = l
	b.close.add("web listener", func() error { _ = l.Close(); return nil })
	return nil
}

// webAdvertised is the address under which other brokers reach the web address: the bound one, with the host of the inter-broker
// listener where it is bound to all. A loopback address serves the brokers on this machine.
func (b *broker) webAdvertised() string {
	if b.webListener == nil {
		return ""
	}
	at := b.webListener.Addr().(*net.TCPAddr)
	host := at.IP.String()
	if at.IP.IsUnspecified() {
		for _, l := range b.bound {
			if l.name == b.cfg.InterBrokerListener {
				host = l.advertised.Host
			}
		}
	}
	return hostPort(host, int32(at.Port))
}

// startWeb serves web.listen, if there is one, as a part of the broker.
func startWeb(b *broker) (*web, error) {
	w := &web{b: b}
	l := b.webListener
	if l == nil {
		return w, nil
	}
	w.addr = l.Addr().String()
	if b.opts.Pprof && !l.Addr().(*net.TCPAddr).IP.IsLoopback() {
		_ = l.Close()
		return nil, fmt.Errorf("--pprof shows the inside of the process: web.listen=%s must be a loopback address with it", b.cfg.WebListen)
	}
	if !l.Addr().(*net.TCPAddr).IP.IsLoopback() {
		b.log.Warn("the web address is open to the network without authentication: whoever reaches it can read topic names and metrics", "address", w.addr)
	}
	srv := &http.Server{Handler: w.routes(), ReadHeaderTimeout: 5 * time.Second, IdleTimeout: time.Minute, MaxHeaderBytes: 64 << 10}
	b.parts.start("web", func(ctx context.Context) error {
		served := make(chan error, 1)
		go func() { served <- srv.Serve(l) }()
		select {
		case err := <-served:
			return err
		case <-ctx.Done():
		}
		stop, cancel := context.WithTimeout(context.WithoutCancel(ctx), 2*time.Second)
		defer cancel()
		err := srv.Shutdown(stop)
		if errors.Is(err, context.DeadlineExceeded) {
			err = srv.Close()
		}
		<-served
		return err
	})
	return w, nil
}

func (w *web) setReady(ready bool) {
	if w != nil {
		w.ready.Store(ready)
	}
}

func (w *web) routes() http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc("GET /healthz", func(rw http.ResponseWriter, _ *http.Request) { fmt.Fprintln(rw, "ok") })
	mux.HandleFunc("GET /readyz", w.serveReady)
	mux.Handle("GET /metrics", promhttp.HandlerFor(newRegistry(w.b), promhttp.HandlerOpts{}))
	mux.HandleFunc("GET /api/v1/broker", w.json(w.brokerInfo))
	mux.HandleFunc("GET /api/v1/controller", w.json(func(*http.Request) (any, error) { return w.b.driver.Status(), nil }))
	mux.HandleFunc("GET /api/v1/topics", w.json(w.topics))
	mux.HandleFunc("GET /api/v1/topics/{topic}", w.json(w.topic))
	mux.HandleFunc("GET /api/v1/topics/{topic}/deletion", w.json(w.deletion))
	mux.HandleFunc("GET /api/v1/deletions", w.json(w.deletions))
	mux.HandleFunc("GET /api/v1/leftovers", w.json(w.leftovers))
	mux.HandleFunc("GET /{$}", w.serveIndex)
	if w.b.opts.Pprof {
		mux.HandleFunc("GET /debug/pprof/", pprof.Index)
		mux.HandleFunc("GET /debug/pprof/profile", pprof.Profile)
		mux.HandleFunc("GET /debug/pprof/symbol", pprof.Symbol)
		mux.HandleFunc("GET /debug/pprof/trace", pprof.Trace)
	}
	return secured(mux)
}

// secured adds the headers that keep a browser from being used against this address.
func secured(next http.Handler) http.Handler {
	return http.HandlerFunc(func(rw http.ResponseWriter, r *http.Request) {
		h := rw.Header()
		h.Set("X-Content-Type-Options", "nosniff")
		h.Set("X-Frame-Options", "DENY")
		h.Set("Content-Security-Policy", "default-src 'none'; style-src 'unsafe-inline'; frame-ancestors 'none'")
		h.Set("Cache-Control", "no-store")
		next.ServeHTTP(rw, r)
	})
}

func (w *web) serveReady(rw http.ResponseWriter, _ *http.Request) {
	if !w.ready.Load() {
		http.Error(rw, "not ready: starting or stopping", http.StatusServiceUnavailable)
		return
	}
	fmt.Fprintln(rw, "ready")
}

// serveIndex tells a person who opens the address what is here.
func (w *web) serveIndex(rw http.ResponseWriter, _ *http.Request) {
	rw.Header().Set("Content-Type", "text/html; charset=utf-8")
	fmt.Fprintf(rw, `<!doctype html><html lang="en"><meta charset="utf-8"><title>klamm broker %d</title>
<style>body{font:16px/1.5 system-ui,sans-serif;max-width:42em;margin:3em auto;padding:0 1em}code{background:#eee;padding:.1em .3em}</style>
<h1>klamm broker %d</h1>
<ul>
<li><a href="/api/v1/broker">/api/v1/broker</a> this broker: listeners, log dirs, versions
<li><a href="/api/v1/controller">/api/v1/controller</a> the controller: epoch, queue, last events
<li><a href="/api/v1/topics">/api/v1/topics</a> topics and their partitions
<li><a href="/api/v1/deletions">/api/v1/deletions</a> deletions that run or wait, and why
<li><a href="/api/v1/leftovers">/api/v1/leftovers</a> what brokers that are away have to remove when they return
<li><a href="/metrics">/metrics</a> for Prometheus
<li><a href="/healthz">/healthz</a>, <a href="/readyz">/readyz</a> for probes
</ul></html>
`, w.b.cfg.ID, w.b.cfg.ID)
}

// httpError is an answer other than 200.
type httpError struct {
	status int
	text   string
}

func (e *httpError) Error() string { return e.text }

func (w *web) json(get func(*http.Request) (any, error)) http.HandlerFunc {
	return func(rw http.ResponseWriter, r *http.Request) {
		status := http.StatusOK
		v, err := get(r)
		if err != nil {
			status = http.StatusInternalServerError
			var he *httpError
			if errors.As(err, &he) {
				status = he.status
			}
			v = map[string]string{"error": err.Error()}
		}
		rw.Header().Set("Content-Type", "application/json")
		rw.WriteHeader(status)
		enc := json.NewEncoder(rw)
		enc.SetIndent("", "  ")
		if err := enc.Encode(v); err != nil {
			w.b.log.Debug("answer a web request", "path", r.URL.Path, "err", err)
		}
	}
}
