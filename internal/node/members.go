package node

import (
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
