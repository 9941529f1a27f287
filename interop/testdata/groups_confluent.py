"""Consumes in groups with confluent-kafka (librdkafka): eager and cooperative rebalances, static members, the admin's view."""
import sys
import time

from confluent_kafka import Consumer, ConsumerGroupTopicPartitions, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic

boot = sys.argv[1]
admin = AdminClient({"bootstrap.servers": boot})
for f in admin.create_topics([NewTopic("confluent-groups", 6, 1)]).values():
    f.result(20)
producer = Producer({"bootstrap.servers": boot})


def produce(start, n):
    for i in range(start, start + n):
        producer.produce("confluent-groups", key=str(i), value=str(i), partition=i % 6)
    assert producer.flush(20) == 0


def consumer(group, **more):
    c = Consumer({"bootstrap.servers": boot, "group.id": group, "auto.offset.reset": "earliest", "session.timeout.ms": 10000,
                  "heartbeat.interval.ms": 300, "enable.auto.commit": False, **{k.replace("_", "."): v for k, v in more.items()}})
    c.subscribe(["confluent-groups"])
    return c


def poll_until(consumers, got, done, what):
    end = time.time() + 60
    while not done():
        assert time.time() < end, (what, len(got), [len(c.assignment()) for c in consumers])
        for c in consumers:
            for m in c.consume(100, 0.05):
                assert not m.error(), m.error()
                got.append(int(m.value()))


produced = 0
for strategy in ("range", "roundrobin", "cooperative-sticky"):
    group, got = f"confluent-{strategy}", []
    produce(produced, 300)
    produced += 300
    a = consumer(group, partition_assignment_strategy=strategy)
    poll_until([a], got, lambda: len(got) >= produced, "alone")
    a.commit(asynchronous=False)
    b = consumer(group, partition_assignment_strategy=strategy)
    poll_until([a, b], got, lambda: len(a.assignment()) == 3 and len(b.assignment()) == 3, "two members")
    assert {p.partition for p in a.assignment()}.isdisjoint({p.partition for p in b.assignment()})
    produce(produced, 300)
    produced += 300
    poll_until([a, b], got, lambda: len(set(got)) >= produced, "records of two members")
    for c in (a, b):
        c.commit(asynchronous=False)
    b.close()
    poll_until([a], got, lambda: len(a.assignment()) == 6, "one left")
    assert sorted(got) == list(range(produced)), (strategy, len(got))
    d = admin.describe_consumer_groups([group])[group].result(20)
    assert d.state.name == "STABLE" and len(d.members) == 1 and d.partition_assignor == strategy, (d.state, d.partition_assignor)
    assert len(d.members[0].assignment.topic_partitions) == 6
    offsets = admin.list_consumer_group_offsets([ConsumerGroupTopicPartitions(group)])[group].result(20)
    assert sum(p.offset for p in offsets.topic_partitions) == produced, offsets.topic_partitions
    a.close()
    a = consumer(group)
    assert sum(p.offset for p in a.committed([TopicPartition("confluent-groups", n) for n in range(6)], 20)) == produced
    a.close()

# A static member that restarts within its session keeps its partitions without a rebalance.
s1, got = consumer("confluent-static", group_instance_id="one"), []
s2 = consumer("confluent-static", group_instance_id="two")
poll_until([s1, s2], got, lambda: len(s1.assignment()) == 3 and len(s2.assignment()) == 3, "static members")
before = sorted(p.partition for p in s2.assignment())
s2.close()
s2 = consumer("confluent-static", group_instance_id="two")
poll_until([s1, s2], got, lambda: len(s2.assignment()) == 3, "static member again")
assert sorted(p.partition for p in s2.assignment()) == before and len(s1.assignment()) == 3
for c in (s1, s2):
    c.close()

listed = {g.group_id for g in admin.list_consumer_groups().result(20).valid}
assert {"confluent-range", "confluent-roundrobin", "confluent-cooperative-sticky", "confluent-static"} <= listed, listed
for f in admin.delete_consumer_groups(["confluent-range", "confluent-roundrobin"]).values():
    f.result(20)
listed = {g.group_id for g in admin.list_consumer_groups().result(20).valid}
assert "confluent-range" not in listed, listed
print("all equal")
