package wiretest

import (
	"math/rand/v2"
	"reflect"

	"github.com/twmb/franz-go/pkg/kmsg"
)

// RandomRequest returns a request with random values in every field, defaults and nulls among them.
func RandomRequest(rng *rand.Rand, key, version int16) kmsg.Request {
	req := kmsg.RequestForKey(key)
	fillRandom(rng, reflect.ValueOf(req).Elem())
	req.SetVersion(version)
	return req
}

// RandomResponse returns a response with random values in every field, defaults and nulls among them.
func RandomResponse(rng *rand.Rand, key, version int16) kmsg.Response {
	resp := kmsg.ResponseForKey(key)
	fillRandom(rng, reflect.ValueOf(resp).Elem())
	resp.SetVersion(version)
	return resp
}

// EveryVersion calls f for every key and version kmsg knows.
func EveryVersion(f func(key, version int16)) {
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

func fillRandom(rng *rand.Rand, v reflect.Value) {
	switch v.Kind() {
	case reflect.Pointer:
		if rng.IntN(3) == 0 {
			v.SetZero()
			return
		}
		v.Set(reflect.New(v.Type().Elem()))
		fillRandom(rng, v.Elem())
	case reflect.Struct:
		fillStruct(rng, v)
	case reflect.Slice:
		fillSlice(rng, v)
	case reflect.Array:
		if rng.IntN(4) == 0 {
			return // the zero uuid
		}
		for i := range v.Len() {
			fillRandom(rng, v.Index(i))
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
			v.SetInt(int64(rng.Uint64()) >> rng.IntN(64))
		}
	case reflect.Uint8, reflect.Uint16, reflect.Uint32:
		v.SetUint(rng.Uint64() >> (64 - v.Type().Bits()))
	case reflect.Float64:
		v.SetFloat(rng.NormFloat64())
	default:
		panic("a message has a field of kind " + v.Kind().String())
	}
}

// fillStruct starts from the protocol's defaults. Tags that no version knows stay absent.
func fillStruct(rng *rand.Rand, v reflect.Value) {
	if v.Type() == reflect.TypeFor[kmsg.Tags]() {
		return
	}
	if d, ok := v.Addr().Interface().(interface{ Default() }); ok {
		d.Default()
	}
	for i := range v.NumField() {
		if v.Type().Field(i).Name != "Version" {
			fillRandom(rng, v.Field(i))
		}
	}
}

func fillSlice(rng *rand.Rand, v reflect.Value) {
	n := rng.IntN(5) - 1
	if v.Type().Elem().Kind() == reflect.Uint8 {
		if n = rng.IntN(40); n%8 == 7 {
			n = -1
		}
	}
	if n < 0 {
		v.SetZero()
		return
	}
	v.Set(reflect.MakeSlice(v.Type(), n, n))
	for i := range n {
		fillRandom(rng, v.Index(i))
	}
}
