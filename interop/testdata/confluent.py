"""Produces and consumes keyed, batched, compressed records with confluent-kafka (librdkafka) and compares them."""
import sys
import time

from confluent_kafka import OFFSET_BEGINNING, Consumer, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic

boot = sys.argv[1]
admin = AdminClient({"bootstrap.servers": boot})
for codec in ("none", "gzip", "snappy", "lz4", "zstd"):
    for acks in ("0", "1", "all"):
        topic = f"confluent-{codec}-{acks}"
        for f in admin.create_topics([NewTopic(topic, 2, 1)]).values():
            f.result(20)
        errors = []
        p = Producer({"bootstrap.servers": boot, "compression.type": codec, "acks": acks,
                      "enable.idempotence": acks == "all", "linger.ms": 20})
        want = {0: [], 1: []}
        for i in range(600):
            k, v = f"k{i}".encode(), (f"v{i}" * (i % 30)).encode()
            want[i % 2].append((k, v))
            p.produce(topic, key=k, value=v, partition=i % 2, headers={"n": str(i)},
                      on_delivery=lambda e, m: e and errors.append(e))
        left = p.flush(30)
        assert left == 0 and not errors, (codec, acks, left, errors[:1])
        c = Consumer({"bootstrap.servers": boot, "group.id": "unused", "enable.auto.commit": False})
        c.assign([TopicPartition(topic, n, OFFSET_BEGINNING) for n in want])
        got = {0: [], 1: []}
        end = time.time() + 30
        while sum(map(len, got.values())) < 600 and time.time() < end:
            for m in c.consume(500, 0.5):
                assert not m.error(), m.error()
                got[m.partition()].append((m.key(), m.value()))
        c.close()
        assert got == want, (codec, acks, {n: len(r) for n, r in got.items()})
for f in admin.delete_topics([f"confluent-{c}-{a}" for c in ("none", "zstd") for a in ("0", "all")]).values():
    f.result(20)
print("all equal")
