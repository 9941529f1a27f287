package main

import (
	"context"
	"fmt"
	"os"
	"strings"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// oneTopic creates and deletes topics of one partition, one after the other.
func oneTopic(ctx context.Context, _ options, c *column, round int) error {
	cl, err := rawClient(c.srv.addr)
	if err != nil {
		return err
	}
	defer cl.Close()
	for i := range 5 {
		name := fmt.Sprint("single-", round, "-", i)
		t := time.Now()
		if err := createTopics(ctx, cl, 1, name); err != nil {
			return err
		}
		c.add(createFigure, ms(time.Since(t)))
		t = time.Now()
		if err := deleteTopics(ctx, cl, name); err != nil {
			return err
		}
		c.add(deleteFigure, ms(time.Since(t)))
	}
	return nil
}

func deleteTopics(ctx context.Context, cl *kgo.Client, names ...string) error {
	req := kmsg.NewPtrDeleteTopicsRequest()
	req.TimeoutMillis = int32(stepTimeout.Milliseconds())
	for _, n := range names {
		t := kmsg.NewDeleteTopicsRequestTopic()
		t.Topic = &n
		req.Topics = append(req.Topics, t)
	}
	req.TopicNames = names
	resp, err := req.RequestWith(ctx, cl)
	if err != nil {
		return err
	}
	for _, t := range resp.Topics {
		if err := kerr.ErrorForCode(t.ErrorCode); err != nil {
			return fmt.Errorf("delete %s: %w", *t.Topic, err)
		}
	}
	return nil
}

// awaitDeleted waits until no directory of a topic with the prefix is left under its name, and its name is free again:
// only then is everything about it gone.
func awaitDeleted(ctx context.Context, cl *kgo.Client, data, prefix, last string) error {
	for {
		entries, err := os.ReadDir(data)
		if err != nil {
			return err
		}
		left := 0
		for _, e := range entries {
			if strings.HasPrefix(e.Name(), prefix) && !strings.HasSuffix(e.Name(), "-delete") {
				left++
			}
		}
		if left == 0 {
			free, err := nameFree(ctx, cl, last)
			if err != nil || free {
				return err
			}
		}
		select {
		case <-time.After(2 * time.Millisecond):
		case <-ctx.Done():
			return fmt.Errorf("%d directories of %s are left: %w", left, prefix, ctx.Err())
		}
	}
}

func nameFree(ctx context.Context, cl *kgo.Client, name string) (bool, error) {
	req := kmsg.NewPtrCreateTopicsRequest()
	req.ValidateOnly = true
	t := kmsg.NewCreateTopicsRequestTopic()
	t.Topic, t.NumPartitions, t.ReplicationFactor = name, 1, 1
	req.Topics = append(req.Topics, t)
	resp, err := req.RequestWith(ctx, cl)
	if err != nil {
		return false, err
	}
	err = kerr.ErrorForCode(resp.Topics[0].ErrorCode)
	if err == kerr.TopicAlreadyExists {
		return false, nil
	}
	return err == nil, err
}

// thousandTopics creates 1,000 topics of one partition by one request, writes to each, and deletes them by one request.
func thousandTopics(ctx context.Context, _ options, c *column, round int) error {
	cl, err := rawClient(c.srv.addr)
	if err != nil {
		return err
	}
	defer cl.Close()
	prefix := fmt.Sprint("many-", round, "-")
	var names []string
	partitions := map[string]int{}
	for i := range 1000 {
		names = append(names, fmt.Sprint(prefix, i))
		partitions[names[i]] = 1
	}
	t := time.Now()
	if err := createTopics(ctx, cl, 1, names...); err != nil {
		return err
	}
	c.add(manyRespFigure, ms(time.Since(t)))
	if err := oneRecordEach(ctx, cl, partitions); err != nil {
		return err
	}
	c.add(manyUseFigure, ms(time.Since(t)))
	c.srv.settle(ctx)
	t = time.Now()
	if err := deleteTopics(ctx, cl, names...); err != nil {
		return err
	}
	for _, last := range []string{names[len(names)-1], names[0]} {
		if err := awaitDeleted(ctx, cl, c.srv.data, prefix, last); err != nil {
			return err
		}
	}
	c.add(manyGoneFigure, ms(time.Since(t)))
	return nil
}

// bigTopic creates 2,000 partitions, writes one record to each, and deletes them.
func bigTopic(ctx context.Context, o options, c *column, round int) error {
	topic := fmt.Sprint("big-", round)
	cl, err := createBig(ctx, c, topic)
	if err != nil {
		return err
	}
	defer cl.Close()
	c.srv.settle(ctx)
	if round == 0 {
		o.rest(ctx)
		c.add(bigRSSFigure, c.srv.rssMiB())
		c.add(bigCPUFigure, c.srv.cpuOver(ctx, o.idleTime()))
	}
	t := time.Now()
	if err := deleteTopics(ctx, cl, topic); err != nil {
		return err
	}
	if err := awaitDeleted(ctx, cl, c.srv.data, topic+"-", topic); err != nil {
		return err
	}
	c.add(bigGoneFigure, ms(time.Since(t)))
	return nil
}

func createBig(ctx context.Context, c *column, topic string) (*kgo.Client, error) {
	const partitions = 2000
	cl, err := rawClient(c.srv.addr)
	if err != nil {
		return nil, err
	}
	if err := connect(ctx, cl); err != nil {
		cl.Close()
		return nil, err
	}
	t := time.Now()
	if err := createTopics(ctx, cl, partitions, topic); err != nil {
		cl.Close()
		return nil, err
	}
	c.add(bigRespFigure, ms(time.Since(t)))
	if err := oneRecordEach(ctx, cl, map[string]int{topic: partitions}); err != nil {
		cl.Close()
		return nil, err
	}
	c.add(bigUseFigure, ms(time.Since(t)))
	return cl, nil
}

// connect lets the client connect and learn the controller, so that the next request pays for neither.
func connect(ctx context.Context, cl *kgo.Client) error {
	req := kmsg.NewPtrMetadataRequest()
	req.Topics = []kmsg.MetadataRequestTopic{}
	_, err := req.RequestWith(ctx, cl)
	return err
}
