package sim

import (
	"klamm/internal/cluster"
	"klamm/internal/controller"
)

// Producer ids are handed out once: blocks follow each other without gap or overlap, and no block is answered twice.

func (k *checks) blockWritten(b controller.ProducerIDBlock) {
	if b.Start != k.lastID+1 {
		k.w.failf("producer id block starts at %d after %d", b.Start, k.lastID)
	}
	k.lastID = b.End
}

func (k *checks) blockAnswered(b controller.AllocateProducerIDsResult) {
	if b.Err != cluster.None {
		return
	}
	if k.handedOut[b.Start] {
		k.w.failf("producer ids from %d are handed out twice", b.Start)
	}
	if b.Start+int64(b.Len)-1 > k.lastID {
		k.w.failf("producer ids from %d are handed out and not written", b.Start)
	}
	k.handedOut[b.Start] = true
}
