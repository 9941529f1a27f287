package record

import (
	"encoding/binary"
	"math/bits"
)

// lz4MagicSize is the size of an LZ4 frame's magic number. The frame's descriptor follows: flags, block size, the content's
// size (8 bytes) and a dictionary's id (4 bytes) if the flags say so, and a checksum of one byte.
const lz4MagicSize = 4

// setLZ4HeaderChecksum writes the checksum of an LZ4 frame's descriptor. Kafka's clients before 0.10 summed the magic number
// too; messages of magic 0 must be so (broken), and everything else must not (KAFKA-3160).
func setLZ4HeaderChecksum(frame []byte, broken bool) {
	if len(frame) <= lz4MagicSize {
		return
	}
	end := lz4MagicSize + 2
	if flags := frame[lz4MagicSize]; flags&0x08 != 0 {
		end += 8
	}
	if flags := frame[lz4MagicSize]; flags&0x01 != 0 {
		end += 4
	}
	if end >= len(frame) {
		return
	}
	start := lz4MagicSize
	if broken {
		start = 0
	}
	frame[end] = byte(xxHash32(frame[start:end]) >> 8)
}

const (
	xxPrime1 uint32 = 2654435761
	xxPrime2 uint32 = 2246822519
	xxPrime3 uint32 = 3266489917
	xxPrime4 uint32 = 668265263
	xxPrime5 uint32 = 374761393
)

// xxHash32 is XXH32 with seed 0.
func xxHash32(b []byte) uint32 {
	size := uint32(len(b))
	h := xxPrime5
	if len(b) >= 16 {
		var seed uint32 // a variable, for the lanes start at values that wrap around
		lanes := [4]uint32{seed + xxPrime1 + xxPrime2, seed + xxPrime2, seed, seed - xxPrime1}
		for ; len(b) >= 16; b = b[16:] {
			for i := range lanes {
				lanes[i] = bits.RotateLeft32(lanes[i]+binary.LittleEndian.Uint32(b[4*i:])*xxPrime2, 13) * xxPrime1
			}
		}
		h = bits.RotateLeft32(lanes[0], 1) + bits.RotateLeft32(lanes[1], 7) + bits.RotateLeft32(lanes[2], 12) + bits.RotateLeft32(lanes[3], 18)
	}
	h += size
	for ; len(b) >= 4; b = b[4:] {
		h = bits.RotateLeft32(h+binary.LittleEndian.Uint32(b)*xxPrime3, 17) * xxPrime4
	}
	for _, c := range b {
		h = bits.RotateLeft32(h+uint32(c)*xxPrime5, 11) * xxPrime1
	}
	h = (h ^ h>>15) * xxPrime2
	h = (h ^ h>>13) * xxPrime3
	return h ^ h>>16
}
