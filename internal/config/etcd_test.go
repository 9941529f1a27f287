package config

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

func TestEtcdIsReadFromItsKeys(t *testing.T) {
	for name, tc := range map[string]struct {
		props map[string]string
		want  Etcd
	}{
		"alone": {nil, Etcd{}},
		"members": {
			map[string]string{"etcd.cluster": "1@a:2380, 2@[::1]:2380", "etcd.listen": ":2380"},
			Etcd{Cluster: []EtcdMember{{1, "a:2380"}, {2, "[::1]:2380"}}, Listen: ":2380"},
		},
		"others' without TLS": {
			map[string]string{"etcd.endpoints": "a:2379,https://b:2379/"},
			Etcd{Endpoints: []string{"http://a:2379", "https://b:2379"}},
		},
		"others' with TLS and a user": {
			map[string]string{"etcd.endpoints": "a:2379", "etcd.tls.ca": "/ca", "etcd.user": "u", "etcd.password": "p"},
			Etcd{Endpoints: []string{"https://a:2379"}, CAFile: "/ca", User: "u", Password: "p"},
		},
	} {
		b, _, err := FromProperties(tc.props)
		if err != nil {
			t.Errorf("%s: %v", name, err)
			continue
		}
		if diff := cmp.Diff(tc.want, b.Etcd); diff != "" {
			t.Errorf("%s: %s", name, diff)
		}
	}
}

func TestWrongSettingsOfEtcdAreNamed(t *testing.T) {
	for name, tc := range map[string]struct {
		props map[string]string
		words []string
	}{
		"no address":         {map[string]string{"etcd.cluster": "1"}, []string{"etcd.cluster", `"1" is not of the form brokerid@host:port`}},
		"no port":            {map[string]string{"etcd.cluster": "1@a"}, []string{`"a" is not host:port`}},
		"no host":            {map[string]string{"etcd.cluster": "1@:2380"}, []string{`":2380" is not host:port`}},
		"an id twice":        {map[string]string{"etcd.cluster": "1@a:1,1@b:1"}, []string{"broker 1 is named twice"}},
		"an address twice":   {map[string]string{"etcd.cluster": "1@a:1,2@a:1"}, []string{"address a:1 is named twice"}},
		"both kinds":         {map[string]string{"etcd.cluster": "1@a:1", "etcd.endpoints": "b:1"}, []string{"only one of them"}},
		"a strange scheme":   {map[string]string{"etcd.endpoints": "tcp://b:1"}, []string{"must begin with http:// or https://"}},
		"listen alone":       {map[string]string{"etcd.listen": ":1"}, []string{"with etcd.cluster only"}},
		"key without cert":   {map[string]string{"etcd.endpoints": "b:1", "etcd.tls.key": "k"}, []string{"belong together"}},
		"half of mutual TLS": {map[string]string{"etcd.cluster": "1@a:1", "etcd.tls.ca": "c"}, []string{"set all of"}},
		"user of members":    {map[string]string{"etcd.cluster": "1@a:1", "etcd.user": "u", "etcd.password": "p"}, []string{"for etcd.endpoints only"}},
		"no password":        {map[string]string{"etcd.endpoints": "b:1", "etcd.user": "u"}, []string{"belong together"}},
		"a short session":    {map[string]string{"broker.session.timeout.ms": "999"}, []string{"must be 1000 or more", "outlast an election"}},
	} {
		_, _, err := FromProperties(tc.props)
		for _, word := range tc.words {
			if err == nil || !strings.Contains(err.Error(), word) {
				t.Errorf("%s: error %v does not say %q", name, err, word)
			}
		}
	}
}

func TestThePasswordOfEtcdIsNotShown(t *testing.T) {
	_, _, err := FromProperties(map[string]string{"etcd.password": "hunter2"})
	if err == nil || strings.Contains(err.Error(), "hunter2") {
		t.Errorf("error %v", err)
	}
}
