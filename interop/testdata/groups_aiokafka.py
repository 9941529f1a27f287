"""Produces with every codec, reads it back in a group that a second member joins and leaves, and administers, with aiokafka."""
import asyncio
import sys

from aiokafka import AIOKafkaConsumer, AIOKafkaProducer, TopicPartition
from aiokafka.admin import AIOKafkaAdminClient, NewPartitions, NewTopic

boot, topic, group = sys.argv[1], "aiokafka", "aiokafka-group"
CODECS = (None, "gzip", "snappy", "lz4", "zstd")
EACH = 200


async def read(consumer, want, into):
    while len(into) < want:
        for tp, records in (await consumer.getmany(timeout_ms=500)).items():
            into += [(r.partition, r.offset, r.value) for r in records]


async def member():
    c = AIOKafkaConsumer(topic, bootstrap_servers=boot, group_id=group, auto_offset_reset="earliest", enable_auto_commit=False,
                         metadata_max_age_ms=1000, heartbeat_interval_ms=200)
    await c.start()
    return c


async def main():
    admin = AIOKafkaAdminClient(bootstrap_servers=boot)
    await admin.start()
    await admin.create_topics([NewTopic(topic, 2, 1, topic_configs={"retention.ms": "100000"})])
    await admin.create_partitions({topic: NewPartitions(4)})
    want = set()
    for idempotent, codec in [(False, c) for c in CODECS] + [(True, None)]:
        p = AIOKafkaProducer(bootstrap_servers=boot, compression_type=codec, acks="all", linger_ms=10, enable_idempotence=idempotent)
        await p.start()
        sent = [await p.send(topic, f"{codec}-{i}".encode(), key=b"k", partition=i % 4, headers=[("h", b"x")]) for i in range(EACH)]
        for i, m in enumerate(await asyncio.gather(*sent)):
            want.add((m.partition, m.offset, f"{codec}-{i}".encode()))
        await p.stop()
    first, got = await member(), []
    await read(first, len(want), got)
    assert len(got) == len(want) and set(got) == want, len(got)
    await first.commit()
    second = await member()  # takes over half of the partitions, at what is committed
    both = asyncio.gather(first.getmany(timeout_ms=1000), second.getmany(timeout_ms=1000))
    assert await both == [{}, {}], "what is committed is read again"
    while not (len(first.assignment()) == len(second.assignment()) == 2):
        assert await asyncio.gather(first.getmany(timeout_ms=100), second.getmany(timeout_ms=100)) == [{}, {}]
    await first.stop()
    while len(second.assignment()) < 4:
        assert await second.getmany(timeout_ms=100) == {}
    tps = [TopicPartition(topic, p) for p in range(4)]
    ends = await second.end_offsets(tps)
    assert sum(ends.values()) == len(want), ends
    found = await second.offsets_for_times({tps[0]: 0})
    assert found[tps[0]].offset == 0, found
    await second.seek_to_beginning(*tps)
    again = []
    await read(second, len(want), again)
    assert set(again) == want
    await second.stop()
    assert group in [g[0] for g in await admin.list_consumer_groups()]
    offsets = await admin.list_consumer_group_offsets(group)
    assert {tp: o.offset for tp, o in offsets.items()} == ends, offsets
    await admin.delete_topics([topic])
    await admin.close()
    print("all equal")


asyncio.run(asyncio.wait_for(main(), 100))
