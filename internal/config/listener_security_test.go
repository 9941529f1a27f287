package config

import (
	"slices"
	"strings"
	"testing"
	"time"
)

// over adds settings to a broker with one SASL_SSL listener that is right.
func over(changes map[string]string) map[string]string {
	set := map[string]string{
		"listeners": "SASL_SSL://h:1", "security.inter.broker.protocol": "SASL_SSL", "sasl.enabled.mechanisms": "PLAIN,SCRAM-SHA-256",
		"sasl.mechanism.inter.broker.protocol": "PLAIN", "ssl.keystore.location": "/k.jks", "ssl.keystore.password": "geheim",
		"listener.name.sasl_ssl.plain.sasl.jaas.config": `org.apache.kafka.common.security.plain.PlainLoginModule required username="b" password="ge\"heim" user_b="ge\"heim" user_al=x;`,
	}
	for k, v := range changes {
		if set[k] = v; v == "-" {
			delete(set, k)
		}
	}
	return set
}

func TestKeysOfAListenerAreFoundFromTheNarrowestToTheGeneral(t *testing.T) {
	b, warnings, err := FromProperties(over(map[string]string{
		"listener.name.sasl_ssl.ssl.keystore.location": "/own.p12", "ssl.keystore.location": "-", "connections.max.reauth.ms": "1000",
		"listener.name.sasl_ssl.plain.connections.max.reauth.ms": "2000", "ssl.client.auth": "requested",
	}))
	if err != nil || len(warnings) > 0 {
		t.Fatal(err, warnings)
	}
	s := b.Security["SASL_SSL"]
	if s.TLS.KeyStore != (Store{"JKS", "/own.p12", "geheim"}) || s.TLS.ClientAuth != "requested" || !s.TLS.VerifyHost {
		t.Errorf("TLS is %+v", s.TLS)
	}
	if s.SASL.ReauthMax["PLAIN"] != 2*time.Second || s.SASL.ReauthMax["SCRAM-SHA-256"] != time.Second || s.SASL.FailureDelay != 100*time.Millisecond {
		t.Errorf("SASL is %+v", s.SASL)
	}
	login := s.SASL.Logins["PLAIN"]
	if login.Username != "b" || login.Password != `ge"heim` || login.Users["al"] != "x" || login.Users["b"] != `ge"heim` {
		t.Errorf("login is %+v", login)
	}
	if !slices.Equal(s.SASL.Mechanisms, []string{"PLAIN", "SCRAM-SHA-256"}) || s.SASL.InterBrokerMechanism != "PLAIN" {
		t.Errorf("mechanisms %v, between brokers %s", s.SASL.Mechanisms, s.SASL.InterBrokerMechanism)
	}
}

func TestFaultsOfSecuredListenersAreNamedAndSecretsAreNot(t *testing.T) {
	const jaas = "listener.name.sasl_ssl.plain.sasl.jaas.config"
	for fact, c := range map[string]struct {
		change map[string]string
		want   string
	}{
		"no key":                     {map[string]string{"ssl.keystore.location": "-"}, "listener SASL_SSL uses TLS and has no key"},
		"two keys":                   {map[string]string{"ssl.keystore.key": "geheim"}, "only one of ssl.keystore.location and ssl.keystore.key"},
		"Kerberos":                   {map[string]string{"sasl.enabled.mechanisms": "-"}, "cannot offer GSSAPI"},
		"no mechanism":               {map[string]string{"sasl.enabled.mechanisms": ""}, "needs a mechanism"},
		"PLAIN without users":        {map[string]string{jaas: "-"}, "knows no users"},
		"a login that is no login":   {map[string]string{jaas: "geheim"}, "must be one entry"},
		"another module":             {map[string]string{jaas: `com.example.Login required password="geheim";`}, "names login module com.example.Login"},
		"brokers by what is not":     {map[string]string{"sasl.mechanism.inter.broker.protocol": "SCRAM-SHA-512"}, "which listener SASL_SSL does not offer"},
		"brokers without a login":    {map[string]string{"sasl.mechanism.inter.broker.protocol": "SCRAM-SHA-256"}, "needs username and password"},
		"a handler class":            {map[string]string{"sasl.server.callback.handler.class": "com.example.Handler"}, "klamm loads none"},
		"a handler of the listener":  {map[string]string{"listener.name.sasl_ssl.plain.sasl.server.callback.handler.class": "x.Y"}, "klamm loads none"},
		"an engine class":            {map[string]string{"ssl.engine.factory.class": "com.example.Engine"}, "klamm loads none"},
		"a principal builder":        {map[string]string{"principal.builder.class": "com.example.Builder"}, "cannot load it"},
		"client auth by another way": {map[string]string{"listener.name.sasl_ssl.ssl.client.auth": "maybe"}, "listener.name.sasl_ssl.ssl.client.auth"},
	} {
		_, _, err := FromProperties(over(c.change))
		if err == nil || !strings.Contains(err.Error(), c.want) || strings.Contains(err.Error(), "geheim") {
			t.Errorf("%s: %v lacks %q or tells a secret", fact, err, c.want)
		}
	}
}
