// Command goclients writes to topics that do not exist yet, with what sarama and kafka-go do by themselves, and reads each record
// back. It ends with "all equal".
//
// Usage: goclients host:port,...
package main

import (
	"context"
	"errors"
	"fmt"
	"log"
	"os"
	"strings"
	"time"

	"github.com/IBM/sarama"
	"github.com/segmentio/kafka-go"
)

// rounds is how many topics each way of writing makes.
const rounds = 5

// patience is for a first record, with the creation of its topic. kafka-go's writer waits a second for more records.
const patience = 3 * time.Second

var ways = []struct {
	name  string
	write func(ctx context.Context, brokers []string, topic string) error
}{
	{"sarama", writeSarama},
	{"kafka-go-writer", writeWriter},
	{"kafka-go-conn", writeConn},
}

func main() {
	brokers := strings.Split(os.Args[1], ",")
	for _, way := range ways {
		for i := range rounds {
			topic := fmt.Sprintf("%s-%d", way.name, i)
			began := time.Now()
			if err := writeAndRead(way.write, brokers, topic); err != nil {
				log.Fatalf("%s, after %v: %v", topic, time.Since(began).Round(time.Millisecond), err)
			}
		}
	}
	fmt.Println("all equal")
}

func writeAndRead(write func(ctx context.Context, brokers []string, topic string) error, brokers []string, topic string) error {
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	if err := write(ctx, brokers, topic); err != nil {
		return fmt.Errorf("write: %w", err)
	}
	if err := ctx.Err(); err != nil { // sarama knows no context
		return fmt.Errorf("write: %w", err)
	}
	if err := readBack(brokers, topic); err != nil {
		return fmt.Errorf("read: %w", err)
	}
	return nil
}

// writeSarama sets no more than its synchronous producer demands.
func writeSarama(_ context.Context, brokers []string, topic string) (err error) {
	config := sarama.NewConfig()
	config.Producer.Return.Successes = true
	p, err := sarama.NewSyncProducer(brokers, config)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, p.Close()) }()
	_, _, err = p.SendMessage(&sarama.ProducerMessage{Topic: topic, Value: sarama.StringEncoder(topic)})
	return err
}

// writeWriter lets the writer ask for the topic, which it does not do by itself.
func writeWriter(ctx context.Context, brokers []string, topic string) (err error) {
	w := &kafka.Writer{Addr: kafka.TCP(brokers...), Topic: topic, AllowAutoTopicCreation: true}
	defer func() { err = errors.Join(err, w.Close()) }()
	return w.WriteMessages(ctx, kafka.Message{Value: []byte(topic)})
}

// writeConn goes to the leader by a connection, as the first example of kafka-go does. A connection tries once; the leader may yet have to
// hear of the topic that another broker has just made, which is no more than a second and an error that says so.
func writeConn(ctx context.Context, brokers []string, topic string) error {
	end := time.Now().Add(time.Second)
	for {
		err := writeConnOnce(ctx, brokers, topic)
		if !errors.Is(err, kafka.UnknownTopicOrPartition) && !errors.Is(err, kafka.LeaderNotAvailable) || time.Now().After(end) {
			return err
		}
	}
}

func writeConnOnce(ctx context.Context, brokers []string, topic string) (err error) {
	c, err := kafka.DialLeader(ctx, "tcp", brokers[0], topic, 0)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, c.Close()) }()
	_, err = c.WriteMessages(kafka.Message{Value: []byte(topic)})
	return err
}

// readBack wants the topic's name as the first record.
func readBack(brokers []string, topic string) (err error) {
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	r := kafka.NewReader(kafka.ReaderConfig{Brokers: brokers, Topic: topic, MaxWait: 100 * time.Millisecond})
	defer func() { err = errors.Join(err, r.Close()) }()
	m, err := r.ReadMessage(ctx)
	if err == nil && (string(m.Value) != topic || m.Offset != 0) {
		err = fmt.Errorf("offset %d holds %q", m.Offset, m.Value)
	}
	return err
}
