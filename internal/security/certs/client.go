package certs

import (
	"crypto/tls"

	"klamm/internal/config"
)

// Client is the configuration of a tool's connections to brokers. A key is optional: brokers may ask for one. The caller sets ServerName.
func Client(cfg *config.TLS) (*tls.Config, error) {
	c, err := clientConfig(cfg)
	if err != nil {
		return nil, err
	}
	if cfg.KeyStore.Location != "" || cfg.Key != "" {
		key, err := readKey(cfg)
		if err != nil {
			return nil, err
		}
		c.Certificates = []tls.Certificate{*key}
	}
	return c, nil
}

// clientConfig is what the keys say of connections to servers, but for the own certificate.
func clientConfig(cfg *config.TLS) (*tls.Config, error) {
	trusted, err := readTrusted(cfg)
	if err != nil {
		return nil, err
	}
	lowest, highest, err := versions(cfg.Protocols)
	if err != nil {
		return nil, err
	}
	ciphers, err := cipherSuites(cfg.CipherSuites)
	if err != nil {
		return nil, err
	}
	c := &tls.Config{RootCAs: trusted, MinVersion: lowest, MaxVersion: highest, CipherSuites: ciphers}
	if !cfg.VerifyHost {
		// The chain is still verified, only the name is not.
		c.InsecureSkipVerify = true
		c.VerifyConnection = func(cs tls.ConnectionState) error { return verifyChain(cs, trusted) }
	}
	return c, nil
}
