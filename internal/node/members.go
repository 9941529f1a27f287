package node

import (
	"context"
	"log/slog"

	"klamm/internal/config"
	"klamm/internal/coord/etcdstore"
)

func etcdTLS(e config.Etcd) etcdstore.TLS {
	return etcdstore.TLS{CA: e.CAFile, Cert: e.CertFile, Key: e.KeyFile}
}

// memberClients is how clients reach the members of etcd.cluster.
func memberClients(e config.Etcd, log *slog.Logger) etcdstore.ClientConfig {
	c := etcdstore.ClientConfig{TLS: etcdTLS(e), Own: true, Log: log}
	for _, m := range e.Cluster {
		c.Endpoints = append(c.Endpoints, c.TLS.URL(m.Addr))
	}
	return c
}

// OpenMembership connects to the members of etcd.cluster, to show and to change them.
func OpenMembership(ctx context.Context, e config.Etcd, log *slog.Logger) (*etcdstore.Membership, error) {
	return etcdstore.OpenMembership(ctx, memberClients(e, log))
}

// MemberOf is a member of etcd.cluster as the store knows it.
func MemberOf(m config.EtcdMember) etcdstore.Peer {
	return etcdstore.Peer{Broker: m.ID, Addr: m.Addr}
}
