"""Sends each line of standard input as one record of an idempotent producer, and answers with its offset.

Usage: idle_confluent.py host:port topic
"""
import sys

from confluent_kafka import Producer


def main(address, topic):
    def failed(error):
        print("error:", error, file=sys.stderr, flush=True)

    producer = Producer({"bootstrap.servers": address, "enable.idempotence": True, "error_cb": failed})

    def delivered(error, message):
        print(error or message.offset(), flush=True)

    for line in sys.stdin:
        producer.produce(topic, line.rstrip("\n"), on_delivery=delivered)
        producer.flush()


main(*sys.argv[1:])
