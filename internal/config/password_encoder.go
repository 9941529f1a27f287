package config

import (
	"crypto/aes"
	"crypto/cipher"
	"crypto/pbkdf2"
	"crypto/rand"
	"crypto/sha1"
	"crypto/sha256"
	"crypto/sha512"
	"encoding/base64"
	"errors"
	"fmt"
	"hash"
	"strconv"
	"strings"
	"unicode/utf16"
)

// PasswordEncoder keeps passwords of dynamic configs in the form in which Kafka stores them (Kafka: EncryptingPasswordEncoder):
// fields name:value joined by commas, with everything that decoding needs but the secret (password.encoder.secret). What is
// decoded may have been encoded with other parameters. The zero value has no secret and refuses both.
type PasswordEncoder struct {
	Secret     string
	KeyFactory string // PBKDF2WithHmacSHA512 if empty
	Cipher     string // password.encoder.cipher.algorithm
	KeyBits    int    // password.encoder.key.length
	Iterations int    // password.encoder.iterations
}

// ErrNoSecret says that a password cannot be stored or read.
var ErrNoSecret = errors.New("password encoder secret not configured")

const saltBytes = 256

// keyHashes are the key derivations that Java offers and AES can use.
var keyHashes = map[string]func() hash.Hash{
	"PBKDF2WithHmacSHA1": sha1.New, "PBKDF2WithHmacSHA224": sha256.New224, "PBKDF2WithHmacSHA256": sha256.New,
	"PBKDF2WithHmacSHA384": sha512.New384, "PBKDF2WithHmacSHA512": sha512.New,
}

// key derives the cipher's key.
func (e PasswordEncoder) key(salt []byte) (cipher.Block, error) {
	h, ok := keyHashes[e.KeyFactory]
	switch {
	case !ok:
		return nil, fmt.Errorf("key factory %q is not supported", e.KeyFactory)
	case !strings.HasPrefix(e.Cipher, "AES/"):
		return nil, fmt.Errorf("cipher %q is not supported", e.Cipher)
	}
	key, err := pbkdf2.Key(h, e.Secret, salt, e.Iterations, e.KeyBits/8)
	if err != nil {
		return nil, err
	}
	return aes.NewCipher(key)
}

// Encode gives the stored form of a password.
func (e PasswordEncoder) Encode(password string) (string, error) {
	if e.Secret == "" {
		return "", ErrNoSecret
	}
	if e.KeyFactory == "" {
		e.KeyFactory = "PBKDF2WithHmacSHA512"
	}
	salt := make([]byte, saltBytes)
	_, _ = rand.Read(salt) // never fails
	block, err := e.key(salt)
	if err != nil {
		return "", err
	}
	var iv, sealed []byte
	tag := ""
	switch e.Cipher {
	case "AES/CBC/PKCS5Padding":
		iv = make([]byte, block.BlockSize())
		_, _ = rand.Read(iv)
		pad := block.BlockSize() - len(password)%block.BlockSize()
		sealed = append([]byte(password), strings.Repeat(string(rune(pad)), pad)...)
		cipher.NewCBCEncrypter(block, iv).CryptBlocks(sealed, sealed)
	case "AES/GCM/NoPadding":
		gcm, err := cipher.NewGCM(block)
		if err != nil {
			return "", err
		}
		iv = make([]byte, gcm.NonceSize())
		_, _ = rand.Read(iv)
		sealed = gcm.Seal(nil, iv, []byte(password), nil)
		tag = ",authenticationTagLength:" + strconv.Itoa(8*gcm.Overhead())
	default:
		return "", fmt.Errorf("cipher %q is not supported", e.Cipher)
	}
	b64 := base64.StdEncoding.EncodeToString
	// Kafka's order, which is that of a hash map.
	return fmt.Sprintf("initializationVector:%s,keyLength:%d,salt:%s,keyFactoryAlgorithm:%s,cipherAlgorithm:%s%s,iterations:%d,passwordLength:%d,encryptedPassword:%s",
		b64(iv), e.KeyBits, b64(salt), e.KeyFactory, e.Cipher, tag, e.Iterations, len(utf16.Encode([]rune(password))), b64(sealed)), nil
}

// Decode gives the password of a stored form.
func (e PasswordEncoder) Decode(stored string) (string, error) {
	if e.Secret == "" {
		return "", ErrNoSecret
	}
	p := storedPassword{fields: map[string]string{}}
	for field := range strings.SplitSeq(stored, ",") {
		name, value, _ := strings.Cut(field, ":")
		p.fields[name] = value
	}
	iv, salt, sealed := p.bytes("initializationVector"), p.bytes("salt"), p.bytes("encryptedPassword")
	e.KeyFactory, e.Cipher = p.fields["keyFactoryAlgorithm"], p.fields["cipherAlgorithm"]
	e.KeyBits, e.Iterations = p.number("keyLength", 512), p.number("iterations", 1<<24)
	length := p.number("passwordLength", 1<<20)
	if p.err != nil {
		return "", p.err
	}
	block, err := e.key(salt)
	if err != nil {
		return "", err
	}
	plain, err := open(block, e.Cipher, iv, sealed)
	if err != nil {
		return "", err
	}
	if len(utf16.Encode([]rune(string(plain)))) != length {
		return "", errors.New("the password was encoded with another secret")
	}
	return string(plain), nil
}

func open(block cipher.Block, name string, iv, sealed []byte) ([]byte, error) {
	wrong := errors.New("the password was encoded with another secret, or is damaged")
	switch name {
	case "AES/CBC/PKCS5Padding":
		size := block.BlockSize()
		if len(iv) != size || len(sealed) == 0 || len(sealed)%size != 0 {
			return nil, wrong
		}
		cipher.NewCBCDecrypter(block, iv).CryptBlocks(sealed, sealed)
		pad := int(sealed[len(sealed)-1])
		if pad < 1 || pad > size {
			return nil, wrong
		}
		return sealed[:len(sealed)-pad], nil
	case "AES/GCM/NoPadding":
		gcm, err := cipher.NewGCM(block)
		if err != nil {
			return nil, err
		}
		if len(iv) != gcm.NonceSize() {
			return nil, wrong
		}
		plain, err := gcm.Open(nil, iv, sealed, nil)
		if err != nil {
			return nil, wrong
		}
		return plain, nil
	}
	return nil, fmt.Errorf("cipher %q is not supported", name)
}

// storedPassword reads fields; err is the first fault.
type storedPassword struct {
	fields map[string]string
	err    error
}

func (p *storedPassword) bytes(name string) []byte {
	b, err := base64.StdEncoding.DecodeString(p.fields[name])
	if err != nil && p.err == nil {
		p.err = fmt.Errorf("field %s is not base64", name)
	}
	return b
}

func (p *storedPassword) number(name string, most int) int {
	n, err := strconv.Atoi(p.fields[name])
	if (err != nil || n < 1 || n > most) && p.err == nil {
		p.err = fmt.Errorf("field %s is not a number between 1 and %d", name, most)
	}
	return n
}
