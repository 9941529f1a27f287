package node

import (
	"fmt"
	"io"
	"strings"
	"time"
)

// printBanner tells a person at a terminal what runs and where.
func (b *broker) printBanner(w io.Writer) {
	if w == nil {
		return
	}
	var listeners []string
	for _, l := range b.bound {
		e := l.advertised
		listeners = append(listeners, fmt.Sprintf("%s://%s", e.Listener, hostPort(e.Host, e.Port)))
	}
	web := "off"
	if b.web.addr != "" {
		web = "http://" + b.web.addr
	}
	fmt.Fprintf(w, "klamm %s is ready after %v\n", b.opts.Version, time.Since(b.started).Round(time.Millisecond))
	for _, row := range [][2]string{
		{"cluster id", b.clusterID},
		{"broker id", fmt.Sprint(b.cfg.ID)},
		{"listeners", strings.Join(listeners, " ")},
		{"data", strings.Join(b.cfg.LogDirs, " ")},
		{"coordination", b.coordination.Name},
		{"web", web},
	} {
		fmt.Fprintf(w, "  %-13s %s\n", row[0], row[1])
	}
}

func (b *broker) endpoint() Endpoint {
	e := Endpoint{Bootstrap: hostPort(b.bound[0].advertised.Host, b.bound[0].advertised.Port)}
	if b.web.addr != "" {
		e.Web = "http://" + b.web.addr
	}
	return e
}
