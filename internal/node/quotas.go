package node

import (
	"time"

	"klamm/internal/config"
	"klamm/internal/quota"
)

// quotas holds what this broker limits, and what is used of it.
type quotas struct {
	clients     *quota.Clients
	connections *quota.Connections
}

func newQuotas(c *config.Broker) quotas {
	now := time.Now()
	windows := quota.Windows{Samples: c.QuotaWindowNum, Length: c.QuotaWindowSize}
	return quotas{
		clients:     quota.NewClients(windows, quota.Windows{Samples: c.ControllerQuotaWindowNum, Length: c.ControllerQuotaWindowSize}, now),
		connections: quota.NewConnections(windows, now),
	}
}
