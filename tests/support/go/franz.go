package main

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"
)

type franzGo struct{}

const patience = 60 * time.Second

func franzClient(asked Asked, more ...kgo.Opt) (*kgo.Client, error) {
	return kgo.NewClient(append(more, kgo.SeedBrokers(strings.Split(asked.Settings["bootstrap.servers"], ",")...))...)
}

func (franzGo) Produce(asked Asked) ([][2]int64, error) {
	codecs := map[string]kgo.CompressionCodec{
		"none": kgo.NoCompression(), "gzip": kgo.GzipCompression(), "snappy": kgo.SnappyCompression(),
		"lz4": kgo.Lz4Compression(), "zstd": kgo.ZstdCompression(),
	}
	more := []kgo.Opt{kgo.AllowAutoTopicCreation()}
	if name, is := asked.Settings["compression.type"]; is {
		more = append(more, kgo.ProducerBatchCompression(codecs[name]))
	}
	records := make([]*kgo.Record, len(asked.Records))
	for i, each := range asked.Records {
		records[i] = &kgo.Record{Topic: asked.Topic, Key: each.Key, Value: each.Value}
		for _, header := range each.Headers {
			records[i].Headers = append(records[i].Headers, kgo.RecordHeader{Key: header.Key, Value: header.Value})
		}
		if each.Timestamp != nil {
			records[i].Timestamp = time.UnixMilli(*each.Timestamp)
		}
		if each.Partition != nil {
			records[i].Partition = *each.Partition
		}
	}
	if len(asked.Records) > 0 && asked.Records[0].Partition != nil {
		more = append(more, kgo.RecordPartitioner(kgo.ManualPartitioner()))
	}
	client, err := franzClient(asked, more...)
	if err != nil {
		return nil, err
	}
	defer client.Close()
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	results := client.ProduceSync(ctx, records...)
	if err := results.FirstErr(); err != nil {
		return nil, err
	}
	placed := make([][2]int64, len(records))
	for i, each := range records {
		placed[i] = [2]int64{int64(each.Partition), each.Offset}
	}
	return placed, nil
}

func franzRecord(each *kgo.Record) Record {
	timestamp := each.Timestamp.UnixMilli()
	shown := Record{each.Topic, &each.Partition, each.Offset, &timestamp, each.Key, each.Value, []Header{}}
	for _, header := range each.Headers {
		shown.Headers = append(shown.Headers, Header{header.Key, header.Value})
	}
	return shown
}

func (franzGo) Read(asked Asked, show func(Record)) error {
	client, err := franzClient(asked, kgo.ConsumeTopics(asked.Topics...))
	if err != nil {
		return err
	}
	defer client.Close()
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	for count := 0; count < asked.Count; {
		fetches := client.PollFetches(ctx)
		if err := fetches.Err(); err != nil {
			return err
		}
		fetches.EachRecord(func(each *kgo.Record) {
			count++
			show(franzRecord(each))
		})
	}
	return nil
}

type franzMember struct {
	client   *kgo.Client
	lock     sync.Mutex
	assigned map[string]bool
}

func (m *franzMember) note(is bool) func(context.Context, *kgo.Client, map[string][]int32) {
	return func(_ context.Context, _ *kgo.Client, changed map[string][]int32) {
		m.lock.Lock()
		defer m.lock.Unlock()
		for topic, partitions := range changed {
			for _, each := range partitions {
				if place := fmt.Sprintf("%s-%d", topic, each); is {
					m.assigned[place] = true
				} else {
					delete(m.assigned, place)
				}
			}
		}
	}
}

func (franzGo) Join(asked Asked) (Member, error) {
	m := &franzMember{assigned: map[string]bool{}}
	more := []kgo.Opt{
		kgo.ConsumerGroup(asked.Settings["group.id"]), kgo.ConsumeTopics(asked.Topics...), kgo.DisableAutoCommit(),
		kgo.OnPartitionsAssigned(m.note(true)), kgo.OnPartitionsRevoked(m.note(false)), kgo.OnPartitionsLost(m.note(false)),
	}
	switch asked.Settings["assignor"] {
	case "range":
		more = append(more, kgo.Balancers(kgo.RangeBalancer()))
	case "sticky":
		more = append(more, kgo.Balancers(kgo.StickyBalancer()))
	}
	if id := asked.Settings["group.instance.id"]; id != "" {
		more = append(more, kgo.InstanceID(id))
	}
	if text := asked.Settings["session.timeout.ms"]; text != "" {
		timeout, err := time.ParseDuration(text + "ms")
		if err != nil {
			return nil, err
		}
		more = append(more, kgo.SessionTimeout(timeout), kgo.HeartbeatInterval(timeout/6))
	}
	var err error
	m.client, err = franzClient(asked, more...)
	return m, err
}

func (m *franzMember) Poll(wait time.Duration) ([]Record, []string, error) {
	ctx, cancel := context.WithTimeout(context.Background(), wait)
	defer cancel()
	var records []Record
	fetches := m.client.PollFetches(ctx)
	if err := fetches.Err(); err != nil && !errors.Is(err, context.DeadlineExceeded) {
		return nil, nil, err
	}
	fetches.EachRecord(func(each *kgo.Record) { records = append(records, franzRecord(each)) })
	m.lock.Lock()
	defer m.lock.Unlock()
	assigned := []string{}
	for place := range m.assigned {
		assigned = append(assigned, place)
	}
	return records, assigned, nil
}

func (m *franzMember) Commit() error {
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	return m.client.CommitUncommittedOffsets(ctx)
}

func (m *franzMember) Close() error {
	m.client.Close()
	return nil
}

func (franzGo) Admin(asked Asked) (map[string]any, error) {
	client, err := franzClient(asked)
	if err != nil {
		return nil, err
	}
	defer client.Close()
	admin := kadm.NewClient(client)
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	topic, group := asked.Topic, asked.Settings["group.id"]
	found := map[string]any{}

	day := "86400000"
	created, err := admin.CreateTopic(ctx, 2, 1, map[string]*string{"retention.ms": &day}, topic)
	if err = errors.Join(err, created.Err); err != nil {
		return nil, fmt.Errorf("create: %w", err)
	}
	again, _ := admin.CreateTopic(ctx, 2, 1, nil, topic)
	found["again"] = fmt.Sprint(again.Err)
	grown, err := admin.UpdatePartitions(ctx, 3, topic)
	if err = errors.Join(err, grown.Error()); err != nil {
		return nil, fmt.Errorf("grow: %w", err)
	}
	topics, err := admin.ListTopics(ctx, topic)
	if err != nil {
		return nil, err
	}
	found["partitions"] = len(topics[topic].Partitions)
	hour := "3600000"
	altered, err := admin.AlterTopicConfigs(ctx, []kadm.AlterConfig{{Op: kadm.SetConfig, Name: "retention.ms", Value: &hour}}, topic)
	if err == nil {
		_, err = altered.On(topic, nil)
	}
	if err != nil {
		return nil, fmt.Errorf("alter: %w", err)
	}
	configs, err := admin.DescribeTopicConfigs(ctx, topic)
	if err != nil {
		return nil, fmt.Errorf("configs: %w", err)
	}
	for _, each := range configs[0].Configs {
		if each.Key == "retention.ms" {
			found["retention.ms"] = each.MaybeValue()
		}
	}
	zero := int32(0)
	producing := asked
	producing.Records = []Record{}
	for range 3 {
		producing.Records = append(producing.Records, Record{Value: []byte("x"), Partition: &zero})
	}
	if _, err := (franzGo{}).Produce(producing); err != nil {
		return nil, err
	}
	var cut kadm.Offsets
	cut.Add(kadm.Offset{Topic: topic, Partition: 0, At: 2})
	deleted, err := admin.DeleteRecords(ctx, cut)
	if err = errors.Join(err, deleted.Error()); err != nil {
		return nil, fmt.Errorf("delete records: %w", err)
	}
	starts, err := admin.ListStartOffsets(ctx, topic)
	if err != nil {
		return nil, err
	}
	ends, err := admin.ListEndOffsets(ctx, topic)
	if err != nil {
		return nil, err
	}
	start, _ := starts.Lookup(topic, 0)
	end, _ := ends.Lookup(topic, 0)
	found["offsets"] = []int64{start.Offset, end.Offset}
	var offsets kadm.Offsets
	offsets.Add(kadm.Offset{Topic: topic, Partition: 0, At: 2, LeaderEpoch: -1, Metadata: "note"})
	if err := admin.CommitAllOffsets(ctx, group, offsets); err != nil {
		return nil, fmt.Errorf("commit: %w", err)
	}
	fetched, err := admin.FetchOffsets(ctx, group)
	if err != nil {
		return nil, fmt.Errorf("offsets: %w", err)
	}
	at, _ := fetched.Lookup(topic, 0)
	found["committed"] = []any{at.At, at.Metadata}
	groups, err := admin.ListGroups(ctx)
	if err != nil {
		return nil, fmt.Errorf("groups: %w", err)
	}
	_, found["listed"] = groups[group]
	described, err := admin.DescribeGroups(ctx, group)
	if err != nil {
		return nil, fmt.Errorf("group: %w", err)
	}
	found["state"] = described[group].State
	logDirs, err := admin.DescribeAllLogDirs(ctx, nil)
	for _, each := range logDirs {
		err = errors.Join(err, each.Error())
	}
	if err != nil {
		return nil, fmt.Errorf("log dirs: %w", err)
	}
	brokers, err := admin.ListBrokers(ctx)
	if err != nil {
		return nil, err
	}
	found["brokers"] = len(brokers)
	goneGroups, err := admin.DeleteGroups(ctx, group)
	if err = errors.Join(err, goneGroups.Error()); err != nil {
		return nil, fmt.Errorf("delete group: %w", err)
	}
	gone, err := admin.DeleteTopics(ctx, topic)
	if err = errors.Join(err, gone.Error()); err != nil {
		return nil, fmt.Errorf("delete: %w", err)
	}
	return found, nil
}
