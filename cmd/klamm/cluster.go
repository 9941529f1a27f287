package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"strings"
	"text/tabwriter"
	"time"

	"klamm/internal/config"
	"klamm/internal/node"
)

const clusterHelp = `Show and change the members of the etcd that klamm brokers run (etcd.cluster).

Usage: klamm cluster members list   OPTIONS
       klamm cluster members add    BROKERID@HOST:PORT OPTIONS
       klamm cluster members remove BROKERID|HOST:PORT OPTIONS

Where the members are:
  --config FILE            a broker's server.properties, for its etcd.cluster and
                           etcd.tls.*
  --endpoints HOST:PORT,.. any of the members, instead
  --tls-ca FILE, --tls-cert FILE, --tls-key FILE
                           as etcd.tls.ca, etcd.tls.cert and etcd.tls.key

To replace broker 3 by a new machine: "remove 3", "add 3@newhost:2380", then
start the new broker with etcd.cluster naming it: it copies the state and then
votes. Last, change etcd.cluster at the other brokers; they need no restart now.
A member can only be removed or added while a majority of the members runs.
`

// clusterTimeout bounds one change of the members.
const clusterTimeout = 15 * time.Second

type clusterOptions struct {
	config    string
	endpoints string
	tls       config.Etcd // its files only
	words     []string
	help      bool
}

func parseCluster(args []string) (clusterOptions, error) {
	var o clusterOptions
	values := map[string]*string{
		"--config": &o.config, "--endpoints": &o.endpoints,
		"--tls-ca": &o.tls.CAFile, "--tls-cert": &o.tls.CertFile, "--tls-key": &o.tls.KeyFile,
	}
	for i := 0; i < len(args); i++ {
		name, value, inline := strings.Cut(args[i], "=")
		target, takesValue := values[name]
		switch {
		case takesValue && !inline && i+1 == len(args):
			return o, fmt.Errorf("%s needs a value", name)
		case takesValue && !inline:
			i++
			*target = args[i]
		case takesValue:
			*target = value
		case name == "--help" || name == "-h":
			o.help = true
		case strings.HasPrefix(name, "-"):
			return o, fmt.Errorf("%s is not an option; `klamm cluster --help` lists them", name)
		default:
			o.words = append(o.words, args[i])
		}
	}
	return o, nil
}

// etcd finds out where the members are.
func (o clusterOptions) etcd() (config.Etcd, error) {
	if (o.config == "") == (o.endpoints == "") {
		return config.Etcd{}, errors.New("name the members by --config or by --endpoints")
	}
	if o.config != "" {
		c, _, err := config.Load(o.config, nil, os.Environ())
		if err != nil {
			return config.Etcd{}, err
		}
		if len(c.Etcd.Cluster) == 0 {
			return config.Etcd{}, fmt.Errorf("%s sets no etcd.cluster: there are no members to speak of", o.config)
		}
		return c.Etcd, nil
	}
	e := o.tls
	for i, addr := range strings.Split(o.endpoints, ",") {
		m, err := config.ParseEtcdMember(fmt.Sprintf("%d@%s", i, strings.TrimSpace(addr)))
		if err != nil {
			return config.Etcd{}, fmt.Errorf("--endpoints: %q is not host:port", addr)
		}
		e.Cluster = append(e.Cluster, m)
	}
	return e, nil
}

// clusterMain runs `klamm cluster`. 0 fine, 1 failure, 2 usage.
func clusterMain(args []string, stdout, stderr io.Writer) int {
	o, err := parseCluster(args)
	if err == nil && !o.help {
		err = checkClusterWords(o.words)
	}
	if err != nil {
		fmt.Fprintf(stderr, "klamm cluster: %v\n", err)
		return 2
	}
	if o.help {
		fmt.Fprint(stdout, clusterHelp)
		return 0
	}
	e, err := o.etcd()
	if err != nil {
		fmt.Fprintf(stderr, "klamm cluster: %v\n", err)
		return 2
	}
	ctx, cancel := context.WithTimeout(context.Background(), clusterTimeout)
	defer cancel()
	if err := changeMembers(ctx, o.words[1:], e, stdout); err != nil {
		fmt.Fprintf(stderr, "klamm cluster: %v\n", err)
		return 1
	}
	return 0
}

func checkClusterWords(words []string) error {
	switch {
	case len(words) == 2 && words[0] == "members" && words[1] == "list":
		return nil
	case len(words) == 3 && words[0] == "members" && (words[1] == "add" || words[1] == "remove"):
		return nil
	}
	return errors.New("want members list, members add BROKERID@HOST:PORT, or members remove BROKERID; see `klamm cluster --help`")
}

func changeMembers(ctx context.Context, words []string, e config.Etcd, stdout io.Writer) (err error) {
	m, err := node.OpenMembership(ctx, e, slog.New(slog.DiscardHandler))
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, m.Close()) }()
	switch words[0] {
	case "add":
		member, err := config.ParseEtcdMember(words[1])
		if err != nil {
			return err
		}
		if err := m.Add(ctx, node.MemberOf(member)); err != nil {
			return err
		}
		fmt.Fprintf(stdout, "Added %s. Start broker %d now, with %s in its etcd.cluster and an empty etcd.data.dir: it copies the state and votes from then on.\n",
			member, member.ID, member)
	case "remove":
		gone, err := m.Remove(ctx, words[1])
		if err != nil {
			return err
		}
		fmt.Fprintf(stdout, "Removed the member at %s. Take it out of etcd.cluster everywhere; its etcd.data.dir is of no use any more.\n", gone.Addr)
	}
	members, err := m.List(ctx)
	if err != nil {
		return err
	}
	w := tabwriter.NewWriter(stdout, 0, 0, 2, ' ', 0)
	fmt.Fprintln(w, "BROKER\tADDRESS\tROLE\tSTATE\tDATABASE\tETCD")
	for _, i := range members {
		name, role, state, size, version := i.Name, "voter", "runs", "-", "-"
		if name == "" {
			name = "?"
		}
		if i.Learner {
			role = "learner"
		}
		if i.Leader {
			role = "leader"
		}
		if i.Err != nil {
			state = i.Err.Error()
		} else {
			size, version = fmt.Sprintf("%d kB", (i.Bytes+999)/1000), i.Version
		}
		fmt.Fprintf(w, "%s\t%s\t%s\t%s\t%s\t%s\n", name, i.Addr, role, state, size, version)
	}
	return w.Flush()
}
