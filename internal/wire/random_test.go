package wire

import (
	"math/rand/v2"
	"reflect"

	"github.com/twmb/franz-go/pkg/kmsg"
)

// fillRandom gives every field of a message a random value, defaults among them. Nullable things are null now and then.
func fillRandom(rng *rand.Rand, v reflect.Value, depth int) {
	switch v.Kind() {
	case reflect.Pointer:
		if rng.IntN(3) == 0 {
			v.SetZero()
			return
		}
		v.Set(reflect.New(v.Type().Elem()))
		fillRandom(rng, v.Elem(), depth)
	case reflect.Struct:
		if v.Type() == reflect.TypeFor[kmsg.Tags]() {
			return
		}
		if d, ok := v.Addr().Interface().(interface{ Default() }); ok {
			d.Default()
		}
		for i := range v.NumField() {
			if name := v.Type().Field(i).Name; name != "Version" {
				fillRandom(rng, v.Field(i), depth+1)
			}
		}
	case reflect.Slice:
		n := rng.IntN(4)
		if v.Type().Elem().Kind() == reflect.Uint8 {
			n = rng.IntN(40)
		}
		v.Set(reflect.MakeSlice(v.Type(), n, n))
		for i := range n {
			fillRandom(rng, v.Index(i), depth)
		}
	case reflect.Array:
		for i := range v.Len() {
			fillRandom(rng, v.Index(i), depth)
		}
	case reflect.String:
		b := make([]byte, rng.IntN(12))
		for i := range b {
			b[i] = byte('a' + rng.IntN(26))
		}
		v.SetString(string(b))
	case reflect.Bool:
		v.SetBool(rng.IntN(2) == 0)
	case reflect.Int8, reflect.Int16, reflect.Int32, reflect.Int64:
		if rng.IntN(4) > 0 { // else the default stays
			v.SetInt(rng.Int64() >> rng.IntN(64))
		}
	case reflect.Uint8, reflect.Uint16, reflect.Uint32:
		v.SetUint(rng.Uint64() >> (64 - v.Type().Bits()))
	case reflect.Float64:
		v.SetFloat(rng.NormFloat64())
	default:
		panic("a message has a field of kind " + v.Kind().String())
	}
}

func randomRequest(rng *rand.Rand, key, version int16) kmsg.Request {
	req := kmsg.RequestForKey(key)
	fillRandom(rng, reflect.ValueOf(req).Elem(), 0)
	req.SetVersion(version)
	return req
}

func randomResponse(rng *rand.Rand, key, version int16) kmsg.Response {
	resp := kmsg.ResponseForKey(key)
	fillRandom(rng, reflect.ValueOf(resp).Elem(), 0)
	resp.SetVersion(version)
	return resp
}

// everyVersion calls f for every key and version kmsg knows.
func everyVersion(f func(key, version int16)) {
	for key := range int16(kmsg.MaxKey + 1) {
		req := kmsg.RequestForKey(key)
		if req == nil {
			continue
		}
		for version := range req.MaxVersion() + 1 {
			f(key, version)
		}
	}
}
