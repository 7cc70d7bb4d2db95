package main

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"time"

	"github.com/IBM/sarama"
)

type saramaGo struct{}

// Its defaults, but for what a setting says; "version" is the Kafka that it takes the broker for.
func saramaConfig(asked Asked) (*sarama.Config, error) {
	config := sarama.NewConfig()
	if text := asked.Settings["version"]; text == "newest" {
		config.Version = sarama.MaxVersion
	} else if text != "" {
		version, err := sarama.ParseKafkaVersion(text)
		if err != nil {
			return nil, err
		}
		config.Version = version
	}
	if asked.Settings["enable.idempotence"] == "true" {
		config.Producer.Idempotent = true
		config.Producer.RequiredAcks = sarama.WaitForAll
		config.Net.MaxOpenRequests = 1
	}
	codecs := map[string]sarama.CompressionCodec{
		"none": sarama.CompressionNone, "gzip": sarama.CompressionGZIP, "snappy": sarama.CompressionSnappy,
		"lz4": sarama.CompressionLZ4, "zstd": sarama.CompressionZSTD,
	}
	if name, is := asked.Settings["compression.type"]; is {
		config.Producer.Compression = codecs[name]
	}
	config.Producer.Return.Successes = true // a synchronous producer needs it
	config.Consumer.Offsets.Initial = sarama.OffsetOldest
	config.Consumer.Offsets.AutoCommit.Enable = false
	switch asked.Settings["assignor"] {
	case "range":
		config.Consumer.Group.Rebalance.GroupStrategies = []sarama.BalanceStrategy{sarama.NewBalanceStrategyRange()}
	case "sticky":
		config.Consumer.Group.Rebalance.GroupStrategies = []sarama.BalanceStrategy{sarama.NewBalanceStrategySticky()}
	}
	config.Consumer.Group.InstanceId = asked.Settings["group.instance.id"]
	if text := asked.Settings["session.timeout.ms"]; text != "" {
		timeout, err := time.ParseDuration(text + "ms")
		if err != nil {
			return nil, err
		}
		config.Consumer.Group.Session.Timeout = timeout
		config.Consumer.Group.Heartbeat.Interval = timeout / 6
	}
	return config, nil
}

func servers(asked Asked) []string { return strings.Split(asked.Settings["bootstrap.servers"], ",") }

func (saramaGo) Produce(asked Asked) ([][2]int64, error) {
	config, err := saramaConfig(asked)
	if err != nil {
		return nil, err
	}
	messages := make([]*sarama.ProducerMessage, len(asked.Records))
	for i, each := range asked.Records {
		messages[i] = &sarama.ProducerMessage{Topic: asked.Topic}
		if each.Key != nil {
			messages[i].Key = sarama.ByteEncoder(each.Key)
		}
		if each.Value != nil {
			messages[i].Value = sarama.ByteEncoder(each.Value)
		}
		for _, header := range each.Headers {
			messages[i].Headers = append(messages[i].Headers, sarama.RecordHeader{Key: []byte(header.Key), Value: header.Value})
		}
		if each.Timestamp != nil {
			messages[i].Timestamp = time.UnixMilli(*each.Timestamp)
		}
		if each.Partition != nil {
			messages[i].Partition = *each.Partition
			config.Producer.Partitioner = sarama.NewManualPartitioner
		}
	}
	producer, err := sarama.NewSyncProducer(servers(asked), config)
	if err != nil {
		return nil, err
	}
	defer producer.Close()
	if err := producer.SendMessages(messages); err != nil {
		var several sarama.ProducerErrors
		if errors.As(err, &several) {
			err = several[0].Err
		}
		return nil, err
	}
	placed := make([][2]int64, len(messages))
	for i, each := range messages {
		placed[i] = [2]int64{int64(each.Partition), each.Offset}
	}
	return placed, nil
}

func saramaRecord(each *sarama.ConsumerMessage) Record {
	timestamp := each.Timestamp.UnixMilli()
	shown := Record{each.Topic, &each.Partition, each.Offset, &timestamp, each.Key, each.Value, []Header{}}
	for _, header := range each.Headers {
		shown.Headers = append(shown.Headers, Header{string(header.Key), header.Value})
	}
	return shown
}

func (saramaGo) Read(asked Asked, show func(Record)) error {
	config, err := saramaConfig(asked)
	if err != nil {
		return err
	}
	config.Consumer.Return.Errors = true
	consumer, err := sarama.NewConsumer(servers(asked), config)
	if err != nil {
		return err
	}
	defer consumer.Close()
	messages := make(chan *sarama.ConsumerMessage)
	failures := make(chan error, 100)
	done := make(chan struct{})
	var readers []sarama.PartitionConsumer
	for _, topic := range asked.Topics {
		partitions, err := consumer.Partitions(topic)
		if err != nil {
			return err
		}
		for _, each := range partitions {
			reader, err := consumer.ConsumePartition(topic, each, sarama.OffsetOldest)
			if err != nil {
				return err
			}
			readers = append(readers, reader)
			go func() {
				for {
					select {
					case <-done:
						return
					case failure := <-reader.Errors():
						if failure != nil {
							failures <- failure
						}
					case message := <-reader.Messages():
						select {
						case messages <- message:
						case <-done:
							return
						}
					}
				}
			}()
		}
	}
	end := time.After(patience)
	for count := 0; count < asked.Count && err == nil; {
		select {
		case message := <-messages:
			count++
			show(saramaRecord(message))
		case err = <-failures:
		case <-end:
			err = fmt.Errorf("only %d of %d came", count, asked.Count)
		}
	}
	close(done)
	for _, each := range readers {
		each.AsyncClose()
	}
	return err
}

type saramaMember struct {
	group    sarama.ConsumerGroup
	messages chan *sarama.ConsumerMessage
	cancel   context.CancelFunc
	ended    chan struct{}
	lock     sync.Mutex
	session  sarama.ConsumerGroupSession
	failure  error
}

func (m *saramaMember) Setup(session sarama.ConsumerGroupSession) error {
	m.lock.Lock()
	defer m.lock.Unlock()
	m.session = session
	return nil
}

func (m *saramaMember) Cleanup(sarama.ConsumerGroupSession) error {
	m.lock.Lock()
	defer m.lock.Unlock()
	m.session = nil
	return nil
}

func (m *saramaMember) ConsumeClaim(session sarama.ConsumerGroupSession, claim sarama.ConsumerGroupClaim) error {
	for {
		select {
		case <-session.Context().Done():
			return nil
		case message, is := <-claim.Messages():
			if !is {
				return nil
			}
			select {
			case m.messages <- message:
				session.MarkMessage(message, "")
			case <-session.Context().Done():
				return nil
			}
		}
	}
}

func (saramaGo) Join(asked Asked) (Member, error) {
	config, err := saramaConfig(asked)
	if err != nil {
		return nil, err
	}
	m := &saramaMember{messages: make(chan *sarama.ConsumerMessage), ended: make(chan struct{})}
	m.group, err = sarama.NewConsumerGroup(servers(asked), asked.Settings["group.id"], config)
	if err != nil {
		return nil, err
	}
	var ctx context.Context
	ctx, m.cancel = context.WithCancel(context.Background())
	go func() {
		defer close(m.ended)
		for ctx.Err() == nil {
			if err := m.group.Consume(ctx, asked.Topics, m); err != nil && !errors.Is(err, sarama.ErrClosedConsumerGroup) {
				m.lock.Lock()
				m.failure = err
				m.lock.Unlock()
				time.Sleep(100 * time.Millisecond) // applications call it again after a pause
			}
		}
	}()
	return m, nil
}

func (m *saramaMember) Poll(wait time.Duration) ([]Record, []string, error) {
	var records []Record
	end := time.After(wait)
	for waiting := true; waiting; {
		select {
		case message := <-m.messages:
			records = append(records, saramaRecord(message))
			if len(records) >= 500 {
				waiting = false
			}
		case <-end:
			waiting = false
		}
	}
	m.lock.Lock()
	defer m.lock.Unlock()
	assigned := []string{}
	if m.session != nil {
		for topic, partitions := range m.session.Claims() {
			for _, each := range partitions {
				assigned = append(assigned, fmt.Sprintf("%s-%d", topic, each))
			}
		}
	}
	return records, assigned, nil
}

func (m *saramaMember) Commit() error {
	m.lock.Lock()
	defer m.lock.Unlock()
	if m.session == nil {
		return fmt.Errorf("no session: %w", m.failure)
	}
	m.session.Commit()
	return nil
}

func (m *saramaMember) Close() error {
	m.cancel()
	err := m.group.Close()
	<-m.ended
	return err
}

func (saramaGo) Admin(asked Asked) (map[string]any, error) {
	config, err := saramaConfig(asked)
	if err != nil {
		return nil, err
	}
	client, err := sarama.NewClient(servers(asked), config)
	if err != nil {
		return nil, err
	}
	defer client.Close()
	admin, err := sarama.NewClusterAdminFromClient(client)
	if err != nil {
		return nil, err
	}
	topic, group := asked.Topic, asked.Settings["group.id"]
	found := map[string]any{}

	day, hour := "86400000", "3600000"
	detail := &sarama.TopicDetail{NumPartitions: 2, ReplicationFactor: 1, ConfigEntries: map[string]*string{"retention.ms": &day}}
	if err := admin.CreateTopic(topic, detail, false); err != nil {
		return nil, fmt.Errorf("create: %w", err)
	}
	found["again"] = fmt.Sprint(admin.CreateTopic(topic, detail, false))
	if err := admin.CreatePartitions(topic, 3, nil, false); err != nil {
		return nil, fmt.Errorf("grow: %w", err)
	}
	topics, err := admin.DescribeTopics([]string{topic})
	if err != nil {
		return nil, err
	}
	found["partitions"] = len(topics[0].Partitions)
	if config.Version.IsAtLeast(sarama.V2_3_0_0) {
		entry := sarama.IncrementalAlterConfigsEntry{Operation: sarama.IncrementalAlterConfigsOperationSet, Value: &hour}
		err = admin.IncrementalAlterConfig(sarama.TopicResource, topic, map[string]sarama.IncrementalAlterConfigsEntry{"retention.ms": entry}, false)
	} else {
		err = admin.AlterConfig(sarama.TopicResource, topic, map[string]*string{"retention.ms": &hour}, false)
	}
	if err != nil {
		return nil, fmt.Errorf("alter: %w", err)
	}
	entries, err := admin.DescribeConfig(sarama.ConfigResource{Type: sarama.TopicResource, Name: topic, ConfigNames: []string{"retention.ms"}})
	if err != nil {
		return nil, fmt.Errorf("configs: %w", err)
	}
	found["retention.ms"] = entries[0].Value
	zero := int32(0)
	producing := asked
	producing.Records = []Record{}
	for range 3 {
		producing.Records = append(producing.Records, Record{Value: []byte("x"), Partition: &zero})
	}
	if _, err := (saramaGo{}).Produce(producing); err != nil {
		return nil, err
	}
	if err := admin.DeleteRecords(topic, map[int32]int64{0: 2}); err != nil {
		return nil, fmt.Errorf("delete records: %w", err)
	}
	start, err := client.GetOffset(topic, 0, sarama.OffsetOldest)
	if err != nil {
		return nil, err
	}
	end, err := client.GetOffset(topic, 0, sarama.OffsetNewest)
	if err != nil {
		return nil, err
	}
	found["offsets"] = []int64{start, end}
	manager, err := sarama.NewOffsetManagerFromClient(group, client)
	if err != nil {
		return nil, err
	}
	partition, err := manager.ManagePartition(topic, 0)
	if err != nil {
		return nil, err
	}
	partition.MarkOffset(2, "note")
	manager.Commit()
	partition.AsyncClose() // its end is the manager's
	if err := manager.Close(); err != nil {
		return nil, fmt.Errorf("commit: %w", err)
	}
	fetched, err := admin.ListConsumerGroupOffsets(group, nil)
	if err != nil {
		return nil, fmt.Errorf("offsets: %w", err)
	}
	if block := fetched.GetBlock(topic, 0); block != nil {
		found["committed"] = []any{block.Offset, block.Metadata}
	}
	groups, err := admin.ListConsumerGroups()
	if err != nil {
		return nil, fmt.Errorf("groups: %w", err)
	}
	_, found["listed"] = groups[group]
	described, err := admin.DescribeConsumerGroups([]string{group})
	if err != nil {
		return nil, fmt.Errorf("group: %w", err)
	}
	found["state"] = described[0].State
	brokers, _, err := admin.DescribeCluster()
	if err != nil {
		return nil, err
	}
	found["brokers"] = len(brokers)
	if _, err := admin.DescribeLogDirs([]int32{brokers[0].ID()}); err != nil {
		return nil, fmt.Errorf("log dirs: %w", err)
	}
	if err := admin.DeleteConsumerGroup(group); err != nil {
		return nil, fmt.Errorf("delete group: %w", err)
	}
	if err := admin.DeleteTopic(topic); err != nil {
		return nil, fmt.Errorf("delete: %w", err)
	}
	return found, nil
}
