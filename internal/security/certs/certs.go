// Package certs makes TLS configurations of Kafka's ssl.* keys: key and trust stores in PEM, JKS or PKCS12, names of clients
// by their certificates (Kafka: DefaultSslEngineFactory, SslPrincipalMapper; KIP-651, KIP-371). Stores in files are read
// again when the file has changed, so a renewed certificate needs no restart.
package certs

import (
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"klamm/internal/config"
)

// checkInterval is how often, at most, the files are looked at for changes.
const checkInterval = 5 * time.Second

// Source is the certificates of one listener. It is safe for concurrent use.
type Source struct {
	log     *slog.Logger
	name    string // of the listener, for the log
	current atomic.Pointer[material]

	mu struct {
		sync.Mutex
		cfg    *config.TLS
		looked time.Time
		files  []fileState // as they were when current was read
	}
}

// material is what was read.
type material struct {
	server, client *tls.Config
}

// fileState tells whether a file has changed.
type fileState struct {
	path    string
	size    int64
	changed time.Time
}

// Open reads the stores. The error names the file or key that is wrong.
func Open(listener string, cfg *config.TLS, log *slog.Logger) (*Source, error) {
	s := &Source{log: log, name: listener}
	return s, s.Reconfigure(cfg)
}

// Reconfigure reads stores that are configured otherwise now, and uses them for connections from now on. When they cannot be
// read the old ones stay, and the error names the file or key that is wrong.
func (s *Source) Reconfigure(cfg *config.TLS) error {
	files := look(cfg)
	m, err := read(cfg)
	if err != nil {
		return fmt.Errorf("listener %s: %w", s.name, err)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.current.Store(m)
	s.mu.cfg, s.mu.looked, s.mu.files = cfg, time.Now(), files
	return nil
}

// Server is the configuration of the listener's connections.
func (s *Source) Server() *tls.Config {
	return &tls.Config{
		MinVersion:         tls.VersionTLS12,
		GetConfigForClient: func(*tls.ClientHelloInfo) (*tls.Config, error) { return s.fresh().server, nil },
	}
}

// Client is the configuration of a connection to another broker's listener of the name.
func (s *Source) Client(host string) *tls.Config {
	c := s.fresh().client.Clone()
	c.ServerName = host
	return c
}

// fresh gives what is in the files now. What cannot be read leaves what was read before.
func (s *Source) fresh() *material {
	s.mu.Lock()
	due := time.Since(s.mu.looked) >= checkInterval
	if due {
		s.mu.looked = time.Now()
	}
	known, cfg := s.mu.files, s.mu.cfg
	s.mu.Unlock()
	if !due {
		return s.current.Load()
	}
	files := look(cfg)
	if slices.Equal(files, known) {
		return s.current.Load()
	}
	m, err := read(cfg)
	switch {
	case !s.replace(cfg, files, m): // configured otherwise meanwhile
	case err != nil:
		s.log.Error("changed certificates cannot be used: the old ones stay", "listener", s.name, "err", err)
	default:
		s.log.Info("certificates were read again", "listener", s.name)
	}
	return s.current.Load()
}

// replace notes the files that were read, and uses what was in them unless that is nil.
func (s *Source) replace(cfg *config.TLS, files []fileState, m *material) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.mu.cfg != cfg {
		return false
	}
	if s.mu.files = files; m != nil {
		s.current.Store(m)
	}
	return true
}

func look(cfg *config.TLS) []fileState {
	var out []fileState
	for _, path := range []string{cfg.KeyStore.Location, cfg.TrustStore.Location} {
		if info, err := os.Stat(path); path != "" && err == nil {
			out = append(out, fileState{path, info.Size(), info.ModTime()})
		}
	}
	return out
}

func read(cfg *config.TLS) (*material, error) {
	key, err := readKey(cfg)
	if err != nil {
		return nil, err
	}
	client, err := clientConfig(cfg)
	if err != nil {
		return nil, err
	}
	client.Certificates = []tls.Certificate{*key}
	server := &tls.Config{
		Certificates: client.Certificates, ClientCAs: client.RootCAs,
		MinVersion: client.MinVersion, MaxVersion: client.MaxVersion, CipherSuites: client.CipherSuites,
		ClientAuth: map[string]tls.ClientAuthType{"required": tls.RequireAndVerifyClientCert, "requested": tls.VerifyClientCertIfGiven}[cfg.ClientAuth],
	}
	return &material{server, client}, nil
}

func verifyChain(cs tls.ConnectionState, trusted *x509.CertPool) error {
	if len(cs.PeerCertificates) == 0 {
		return errors.New("the server shows no certificate")
	}
	between := x509.NewCertPool()
	for _, c := range cs.PeerCertificates[1:] {
		between.AddCert(c)
	}
	_, err := cs.PeerCertificates[0].Verify(x509.VerifyOptions{Roots: trusted, Intermediates: between})
	return err
}

// versions turns ssl.enabled.protocols into a range. Go has none below 1.2 that should be used.
func versions(names []string) (lowest, highest uint16, err error) {
	known := map[string]uint16{"TLSv1.2": tls.VersionTLS12, "TLSv1.3": tls.VersionTLS13}
	for _, n := range names {
		v, ok := known[n]
		if !ok {
			return 0, 0, fmt.Errorf("ssl.enabled.protocols: %s is not supported, TLSv1.2 and TLSv1.3 are", n)
		}
		if lowest == 0 || v < lowest {
			lowest = v
		}
		highest = max(highest, v)
	}
	if lowest == 0 {
		return 0, 0, errors.New("ssl.enabled.protocols: at least one is needed")
	}
	return lowest, highest, nil
}

func cipherSuites(names []string) ([]uint16, error) {
	var out []uint16
	for _, n := range names {
		i := slices.IndexFunc(tls.CipherSuites(), func(c *tls.CipherSuite) bool { return c.Name == n })
		if i < 0 {
			return nil, fmt.Errorf("ssl.cipher.suites: %s is not supported", n)
		}
		out = append(out, tls.CipherSuites()[i].ID)
	}
	return out, nil
}
