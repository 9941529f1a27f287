"""Produces and consumes keyed, batched, compressed records with kafka-python and compares them."""
import sys
import time

from kafka import KafkaConsumer, KafkaProducer, TopicPartition

boot = sys.argv[1]
for codec in (None, "gzip", "snappy", "lz4", "zstd"):
    topic = f"kafkapython-{codec}"
    p = KafkaProducer(bootstrap_servers=boot, compression_type=codec, acks="all", linger_ms=20)
    want = [(f"k{i}".encode(), (f"v{i}" * (i % 30)).encode()) for i in range(600)]
    sent = [p.send(topic, key=k, value=v, partition=0, headers=[("n", b"1")]) for k, v in want]
    p.flush(30)
    assert [f.get(10).offset for f in sent] == list(range(600))
    p.close()
    c = KafkaConsumer(bootstrap_servers=boot, enable_auto_commit=False, consumer_timeout_ms=30000)
    tp = TopicPartition(topic, 0)
    c.assign([tp])
    c.seek_to_beginning(tp)
    assert c.beginning_offsets([tp]) == {tp: 0} and c.end_offsets([tp]) == {tp: 600}
    got = []
    end = time.time() + 30
    while len(got) < 600 and time.time() < end:
        for records in c.poll(500).values():
            got += [(r.key, r.value) for r in records]
    assert got == want, (codec, len(got))
    c.close()
print("all equal")
