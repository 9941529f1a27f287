package wire

import (
	"crypto/tls"
	"errors"
	"fmt"
	"io"
)

// tlsRecordBytes is the most that one record of TLS holds.
const tlsRecordBytes = 16 << 10

// handshakeTLS completes the handshake of a TLS connection, so that the client is known before its first request. Others
// pass. It runs on the reader, under the reader's deadline.
func (c *Conn) handshakeTLS() error {
	nc, ok := c.nc.(*tls.Conn)
	if !ok {
		return nil
	}
	if err := nc.HandshakeContext(c.ctx); err != nil {
		if c.ctx.Err() != nil || c.srv.isDraining() {
			return errStopping
		}
		if errors.Is(err, io.EOF) {
			return err // whoever looked whether the port is open
		}
		c.srv.stats.AuthenticationFailed.Add(1)
		return &violation{reason: "TLS handshake failed", err: err, key: -1}
	}
	if c.listener.TLSPrincipal == nil || c.listener.SASL != nil {
		return nil
	}
	principal, err := c.listener.TLSPrincipal(nc.ConnectionState())
	if err != nil {
		return &violation{reason: "certificate names nobody", err: fmt.Errorf("principal of the certificate: %w", err), key: -1}
	}
	if principal != "" {
		c.identity.Store(&Identity{Principal: principal})
		c.srv.stats.Authenticated.Add(1)
	}
	return nil
}
