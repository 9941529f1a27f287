"""Writes and reads over SASL_SSL with confluent-kafka (librdkafka): BOOTSTRAP CA USER PASSWORD TOPIC GROUP."""
import sys

from confluent_kafka import Consumer, KafkaException, Producer

bootstrap, ca, user, password, topic, group = sys.argv[1:]
secured = {
    "bootstrap.servers": bootstrap, "security.protocol": "SASL_SSL", "ssl.ca.location": ca,
    "sasl.mechanism": "SCRAM-SHA-512", "sasl.username": user, "sasl.password": password,
}
failures = []
producer = Producer(secured | {"error_cb": lambda e: failures.append(e)})
producer.produce(topic, b"from librdkafka", on_delivery=lambda err, _: failures.append(err) if err else None)
if producer.flush(20) or failures:
    sys.exit(f"not written: {failures}")
consumer = Consumer(secured | {"group.id": group, "auto.offset.reset": "earliest"})
consumer.subscribe([topic])
seen = []
while b"from librdkafka" not in seen:
    m = consumer.poll(20)
    if m is None or m.error():
        raise KafkaException(m.error() if m else "nothing came")
    seen.append(m.value())
consumer.close()
print(len(seen))
