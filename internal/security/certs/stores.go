package certs

import (
	"bytes"
	"crypto/tls"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"fmt"
	"os"
	"slices"

	"github.com/pavlo-v-chernykh/keystore-go/v4"
	"github.com/youmark/pkcs8"
	"software.sslmate.com/src/go-pkcs12"

	"klamm/internal/config"
)

// Formats of stores. Java finds out by itself which of JKS and PKCS12 a file is, whatever ssl.keystore.type says, since
// keytool has changed its default; so do we.
func isPEM(data []byte) bool { return bytes.Contains(data, []byte("-----BEGIN ")) }
func isJKS(data []byte) bool { return bytes.HasPrefix(data, []byte{0xfe, 0xed, 0xfe, 0xed}) }

// readKey reads the private key with its certificate chain.
func readKey(cfg *config.TLS) (*tls.Certificate, error) {
	if cfg.KeyStore.Location == "" {
		c, err := pemKey([]byte(cfg.Certificates), []byte(cfg.Key), cfg.KeyPassword)
		if err != nil {
			return nil, fmt.Errorf("ssl.keystore.key and ssl.keystore.certificate.chain: %w", err)
		}
		return c, nil
	}
	data, err := os.ReadFile(cfg.KeyStore.Location)
	if err != nil {
		return nil, fmt.Errorf("ssl.keystore.location: %w", err)
	}
	var c *tls.Certificate
	switch {
	case isPEM(data):
		c, err = pemKey(data, data, cfg.KeyPassword)
	case isJKS(data):
		c, err = jksKey(data, cfg.KeyStore.Password, cfg.KeyPassword)
	default:
		c, err = pkcs12Key(data, cfg.KeyStore.Password)
	}
	if err != nil {
		return nil, fmt.Errorf("ssl.keystore.location %s: %w", cfg.KeyStore.Location, err)
	}
	return c, nil
}

// readTrusted reads the authorities; nil means the system's.
func readTrusted(cfg *config.TLS) (*x509.CertPool, error) {
	var list []*x509.Certificate
	var err error
	name := "ssl.truststore.certificates"
	switch {
	case cfg.Trusted != "":
		list, err = pemCertificates([]byte(cfg.Trusted))
	case cfg.TrustStore.Location == "":
		return nil, nil
	default:
		name = "ssl.truststore.location " + cfg.TrustStore.Location
		var data []byte
		if data, err = os.ReadFile(cfg.TrustStore.Location); err != nil {
			return nil, fmt.Errorf("ssl.truststore.location: %w", err)
		}
		switch {
		case isPEM(data):
			list, err = pemCertificates(data)
		case isJKS(data):
			list, err = jksCertificates(data, cfg.TrustStore.Password)
		default:
			list, err = pkcs12.DecodeTrustStore(data, cfg.TrustStore.Password)
		}
	}
	if err == nil && len(list) == 0 {
		err = errors.New("there is no certificate in it")
	}
	if err != nil {
		return nil, fmt.Errorf("%s: %w", name, err)
	}
	pool := x509.NewCertPool()
	for _, c := range list {
		pool.AddCert(c)
	}
	return pool, nil
}

func pemCertificates(data []byte) ([]*x509.Certificate, error) {
	var out []*x509.Certificate
	for _, der := range pemBlocks(data, "CERTIFICATE") {
		c, err := x509.ParseCertificate(der)
		if err != nil {
			return nil, err
		}
		out = append(out, c)
	}
	return out, nil
}

// pemBlocks gives the contents of the blocks of some types.
func pemBlocks(data []byte, types ...string) [][]byte {
	var out [][]byte
	for {
		var b *pem.Block
		if b, data = pem.Decode(data); b == nil {
			return out
		}
		if slices.Contains(types, b.Type) {
			out = append(out, b.Bytes)
		}
	}
}

// pemKey takes a PKCS#8 key, as Kafka does, encrypted or not.
func pemKey(chain, key []byte, password string) (*tls.Certificate, error) {
	certificates := pemBlocks(chain, "CERTIFICATE")
	if len(certificates) == 0 {
		return nil, errors.New("there is no certificate in PEM")
	}
	if plain := pemBlocks(key, "PRIVATE KEY"); len(plain) > 0 {
		k, err := x509.ParsePKCS8PrivateKey(plain[0])
		if err != nil {
			return nil, err
		}
		return checked(k, certificates)
	}
	encrypted := pemBlocks(key, "ENCRYPTED PRIVATE KEY")
	if len(encrypted) == 0 {
		return nil, errors.New("there is no PKCS#8 private key in PEM (openssl pkcs8 -topk8 makes one)")
	}
	if password == "" {
		return nil, errors.New("the private key is encrypted: set ssl.key.password")
	}
	k, err := pkcs8.ParsePKCS8PrivateKey(encrypted[0], []byte(password))
	if err != nil {
		return nil, fmt.Errorf("decrypt the private key: %w", err)
	}
	return checked(k, certificates)
}

// checked makes sure that the key belongs to the first certificate.
func checked(key any, chain [][]byte) (*tls.Certificate, error) {
	der, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		return nil, err
	}
	var certificates []byte
	for _, c := range chain {
		certificates = append(certificates, pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: c})...)
	}
	pair, err := tls.X509KeyPair(certificates, pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: der}))
	return &pair, err
}

func jksKey(data []byte, password, keyPassword string) (*tls.Certificate, error) {
	store := keystore.New()
	if err := store.Load(bytes.NewReader(data), []byte(password)); err != nil {
		return nil, err
	}
	if keyPassword == "" {
		keyPassword = password
	}
	for _, alias := range store.Aliases() {
		if !store.IsPrivateKeyEntry(alias) {
			continue
		}
		entry, err := store.GetPrivateKeyEntry(alias, []byte(keyPassword))
		if err != nil {
			return nil, err
		}
		key, err := x509.ParsePKCS8PrivateKey(entry.PrivateKey)
		if err != nil {
			return nil, err
		}
		var chain [][]byte
		for _, c := range entry.CertificateChain {
			chain = append(chain, c.Content)
		}
		return checked(key, chain)
	}
	return nil, errors.New("there is no private key in it")
}

func jksCertificates(data []byte, password string) ([]*x509.Certificate, error) {
	store := keystore.New()
	if err := store.Load(bytes.NewReader(data), []byte(password)); err != nil {
		return nil, err
	}
	var out []*x509.Certificate
	for _, alias := range store.Aliases() {
		if !store.IsTrustedCertificateEntry(alias) {
			continue
		}
		entry, err := store.GetTrustedCertificateEntry(alias)
		if err != nil {
			return nil, err
		}
		c, err := x509.ParseCertificate(entry.Certificate.Content)
		if err != nil {
			return nil, err
		}
		out = append(out, c)
	}
	return out, nil
}

func pkcs12Key(data []byte, password string) (*tls.Certificate, error) {
	key, certificate, rest, err := pkcs12.DecodeChain(data, password)
	if err != nil {
		return nil, err
	}
	chain := [][]byte{certificate.Raw}
	for _, c := range rest {
		chain = append(chain, c.Raw)
	}
	return checked(key, chain)
}
