package config

import (
	"errors"
	"regexp"
	"strings"
	"testing"
)

// Encoded by Kafka 3.9.1's PasswordEncoder with "the secret".
var encodedByKafka = []struct{ name, password, stored string }{
	{"CBC", "pässword, with: signs", "initializationVector:o8BmO+ymZSYDS2iScPJfgQ==,keyLength:128,salt:VOIJo5a58+fmBnbfCkY9QBUGxYZx/1D3uGaUgLPMmeM6m8gWQ2SzOyN6t7Dnj/lud+HNSWR4uJgATKWUMnpVhmmpiOJUyeQv/fG7MYPOfEF8UOpL8/V6+lbCEXsqmVNXHWKcsh6XfKw5IzUATFmXnunF/Z9LSDsN8JHz3BRILNQD+MeTgyMU4DNm537ZB+VwnpXJQ20NQRYCO4f/qOFAymQyV8XRzqmY5k34Og5i9/A93QtVi95e62ZKAM+wXD+NdI7bbxJG13OpRKKrba2GF1vdRAZWI26zNFGDZj8NSx2Ae2v8TFgxcj9i1V1QbtLLfk0v2NguJGvn23GyNdVsHw==,keyFactoryAlgorithm:PBKDF2WithHmacSHA512,cipherAlgorithm:AES/CBC/PKCS5Padding,iterations:4096,passwordLength:21,encryptedPassword:YiIy+9toi6ntOD8IRcxBvVQupigDm8GNTLBJUwdvV58="},
	{"GCM", "pässword, with: signs", "initializationVector:p44fK4szK6Q4hVwk,keyLength:128,salt:frqb0AiBYV0LXKa5UYs7BMDuJuw8uAqfo1OAJRDbd/OgmxzFfPIoM1ZOxJrxDJJAlnTAe5dxhwFnIkXEGyqY2LAfL46DwgCJpX9+TpMXNsXyPZ4Et4iiheyX/9LqxnohzFmNoB2wpAxurvonucy4Be+yLNAugmKinaQWTshoXDgUy+9IH+MPjcFbZVw1UTAFL9p2gjNAh0LBdHSRpQRabG/wXIZxhfhBT9l6H2CSL0pWc1hK7R+cBmpSURcbs4w2pl37i1G8oJbktq1sqiUFFjg1k+wpYG8fsib4Z80nQghrMJFH7vqYfO0j1lAk7mAy+rti6UGAA1qWr+3GFfas0g==,keyFactoryAlgorithm:PBKDF2WithHmacSHA512,cipherAlgorithm:AES/GCM/NoPadding,authenticationTagLength:128,iterations:4096,passwordLength:21,encryptedPassword:J/91VFjBV5zCy83oacPgLGI5ZjfU6t1A1xwUn3/CHyASbDD2mTU="},
	{"SHA-1 and a longer key", "x", "initializationVector:E3vicDDFJPn5Fvco/hO4lg==,keyLength:256,salt:TXJ90fXiBH0RUDsUrec/2DsrAFytzoWq4seqTOoGAmhe1jRg54dX9nn9M3RYQGOf4uYtYV53c8ieKitqBzegtOEmz9wIkt2E84XtsTC6zZ9vDQLmDbLipyqLo8Yelhhy/oxYVIvZektG7NiSe6ovv/+wKaaNtZU5jfCa7UU34bMNBZN71e8Td+IlNlRWageyiaUdsbH+zHvYsCkF8weJCfUnN7jH+VQOwS1c7Wie2zJkSY+JkXie3eJXikPxGGYVlwpkVJj4/OT5HviHBx1yEpc5Wg/vAAYn5eSYJ91bOgqrG2AEZ9lOMv92qR7aw07WLXkb1x+ugLEzsFJKjihnbg==,keyFactoryAlgorithm:PBKDF2WithHmacSHA1,cipherAlgorithm:AES/CBC/PKCS5Padding,iterations:2048,passwordLength:1,encryptedPassword:/EqJ/2suoFFc5F4aN+noxg=="},
}

func TestPasswordsThatKafkaStoredAreRead(t *testing.T) {
	for _, c := range encodedByKafka {
		if got, err := (PasswordEncoder{Secret: "the secret"}).Decode(c.stored); err != nil || got != c.password {
			t.Errorf("%s: %q, %v", c.name, got, err)
		}
		if got, err := (PasswordEncoder{Secret: "another secret"}).Decode(c.stored); err == nil {
			t.Errorf("%s: another secret gives %q", c.name, got)
		}
		if _, err := (PasswordEncoder{}).Decode(c.stored); !errors.Is(err, ErrNoSecret) {
			t.Errorf("%s: without a secret: %v", c.name, err)
		}
	}
}

func TestStoredPasswordsHaveKafkasForm(t *testing.T) {
	names := regexp.MustCompile(`(^|,)\w+:`)
	for _, c := range encodedByKafka[:2] {
		e := PasswordEncoder{Secret: "the secret", Cipher: "AES/" + c.name + map[string]string{"CBC": "/PKCS5Padding", "GCM": "/NoPadding"}[c.name], KeyBits: 128, Iterations: 4096}
		stored, err := e.Encode(c.password)
		if err != nil {
			t.Fatal(err)
		}
		if len(stored) != len(c.stored) {
			t.Errorf("%s: stored as %s", c.name, stored)
		}
		if got, want := names.FindAllString(stored, -1), names.FindAllString(c.stored, -1); strings.Join(got, "") != strings.Join(want, "") {
			t.Errorf("%s: fields %v, want %v", c.name, got, want)
		}
		if got, err := e.Decode(stored); err != nil || got != c.password {
			t.Errorf("%s: read back as %q, %v", c.name, got, err)
		}
	}
}

func FuzzStoredPasswordsNeverPanic(f *testing.F) {
	for _, c := range encodedByKafka {
		f.Add(c.stored)
	}
	f.Add("iterations:1,keyLength:7")
	f.Fuzz(func(t *testing.T, stored string) {
		_, _ = PasswordEncoder{Secret: "s"}.Decode(stored)
	})
}
