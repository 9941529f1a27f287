"""Consumes in groups with kafka-python: rebalances between members on threads, commits, the admin's view."""
import sys
import threading
import time

from kafka import KafkaAdminClient, KafkaConsumer, KafkaProducer, TopicPartition
from kafka.admin import NewTopic
from kafka.structs import OffsetAndMetadata

boot = sys.argv[1]
topic = "kafkapython-groups"
admin = KafkaAdminClient(bootstrap_servers=boot)
admin.create_topics([NewTopic(name=topic, num_partitions=4, replication_factor=1)])
producer = KafkaProducer(bootstrap_servers=boot)


def produce(start, n):
    for i in range(start, start + n):
        producer.send(topic, str(i).encode(), partition=i % 4)
    producer.flush(20)


class Member(threading.Thread):
    """A consumer on its own thread, which commits what it has read."""

    def __init__(self, group):
        super().__init__(daemon=True)
        self.consumer = KafkaConsumer(topic, bootstrap_servers=boot, group_id=group, auto_offset_reset="earliest", enable_auto_commit=False,
                                      session_timeout_ms=10000, heartbeat_interval_ms=500)
        self.got, self.owned, self.over, self.error = [], set(), False, None
        self.start()

    def run(self):
        try:
            while not self.over:
                records = self.consumer.poll(timeout_ms=100)
                self.owned = {p.partition for p in self.consumer.assignment()}
                for batch in records.values():
                    self.got += [int(r.value) for r in batch]
                if records:
                    self.consumer.commit()
            self.consumer.close()
        except Exception as e:  # the main thread tells of it
            self.error = e

    def stop(self):
        self.over = True
        self.join(30)


def wait(what, members, cond):
    end = time.time() + 60
    while not cond():
        assert time.time() < end, (what, [(len(m.got), m.owned) for m in members])
        for m in members:
            assert m.error is None, (what, m.error)
        time.sleep(0.05)


produce(0, 200)
one = Member("kafkapython")
wait("alone", [one], lambda: len(one.got) == 200)
two = Member("kafkapython")
wait("two members", [one, two], lambda: len(one.owned) == 2 and len(two.owned) == 2 and not one.owned & two.owned)
produce(200, 200)
wait("all records", [one, two], lambda: len(set(one.got + two.got)) == 400)
two.stop()
wait("one left", [one], lambda: len(one.owned) == 4)
one.stop()
assert two.error is None and one.error is None, (one.error, two.error)

plain = KafkaConsumer(bootstrap_servers=boot, group_id="kafkapython", enable_auto_commit=False)
assert [plain.committed(TopicPartition(topic, p)) for p in range(4)] == [100] * 4
plain.assign([TopicPartition(topic, 0)])
plain.commit({TopicPartition(topic, 0): OffsetAndMetadata(42, "note", -1)})
assert plain.committed(TopicPartition(topic, 0)) == 42
plain.close()
print("all equal")
