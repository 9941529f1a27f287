package config

import (
	"fmt"
	"maps"
	"slices"

	"klamm/internal/cluster"
)

// isPassword reports whether values of the key are stored encoded (Kafka: DynamicBrokerConfig.DynamicPasswordConfigs).
func isPassword(name string) bool {
	def := brokerDefinition(name)
	return def != nil && def.Type == Password && def.Update != ReadOnly
}

// encoder is that of the file's password.encoder.* keys, with the secret of the named key.
func (d *Dynamic) encoder(secretKey string) PasswordEncoder {
	b := d.current.Load().static
	text := func(key string) string { v, _ := b.Get(key); return v }
	return PasswordEncoder{
		Secret: text(secretKey), KeyFactory: text("password.encoder.keyfactory.algorithm"), Cipher: text("password.encoder.cipher.algorithm"),
		KeyBits: int(b.values["password.encoder.key.length"].(int64)), Iterations: int(b.values["password.encoder.iterations"].(int64)),
	}
}

// decodePasswords gives stored settings as they are used. A password that cannot be decoded is left out, and told.
func (d *Dynamic) decodePasswords(stored map[string]string) (map[string]string, []Warning) {
	out := map[string]string{}
	var warnings []Warning
	for _, k := range slices.Sorted(maps.Keys(stored)) {
		if !isPassword(k) {
			out[k] = stored[k]
			continue
		}
		plain, err := d.encoder("password.encoder.secret").Decode(stored[k])
		if err != nil { // while the secret is being changed
			if old, errOld := d.encoder("password.encoder.old.secret").Decode(stored[k]); errOld == nil {
				plain, err = old, nil
			}
		}
		if err != nil {
			warnings = append(warnings, Warning{k, fmt.Sprintf("dynamic password %s cannot be decoded and is not applied: %s", k, err)})
			continue
		}
		out[k] = plain
	}
	return out, warnings
}

// encodePasswords gives settings as they are to be stored. What is as it was before keeps its stored form.
func (d *Dynamic) encodePasswords(set, stored, before map[string]string) (map[string]string, *Error) {
	out := maps.Clone(set)
	for k, v := range set {
		if !isPassword(k) {
			continue
		}
		if was, ok := before[k]; ok && was == v {
			out[k] = stored[k]
			continue
		}
		encoded, err := d.encoder("password.encoder.secret").Encode(v)
		if err != nil {
			return nil, refuse(cluster.InvalidRequest, "%s cannot be stored: %s. Set password.encoder.secret in the file and restart", k, err)
		}
		out[k] = encoded
	}
	return out, nil
}
