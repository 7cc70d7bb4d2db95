package main

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/sasl/scram"
)

// What pages of Redpanda Console ask a cluster for, by its source (backend/pkg/console), in the order of somebody who
// goes through them.
type console struct {
	ctx    context.Context
	client *kgo.Client
	admin  *kadm.Client
	topic  string
	group  string
	copies int16
	shown  map[string]any
}

// The pages, and for each what it would show, or the error. The topic has messages, and the group has committed there
// and has no members; "copies" are how many a topic can have.
func consolePages(asked Asked) (map[string]any, error) {
	var more []kgo.Opt
	if user := asked.Settings["user"]; user != "" {
		credentials := scram.Auth{User: user, Pass: asked.Settings["password"]}
		more = append(more, kgo.SASL(credentials.AsSha256Mechanism()))
	}
	client, err := franzClient(asked, more...)
	if err != nil {
		return nil, err
	}
	defer client.Close()
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	c := &console{
		ctx, client, kadm.NewClient(client), asked.Topic, asked.Settings["group.id"], int16(asked.Count), map[string]any{},
	}
	c.page("overview", c.overview)
	c.page("brokers", c.brokers)
	c.page("topics", c.topics)
	c.page("topic's partitions", c.partitions)
	c.page("topic's settings", func() (any, error) { return c.setting(c.topic, "cleanup.policy") })
	c.page("messages", c.messages)
	c.page("a message is produced", func() (any, error) { return "done", c.produce(c.topic) })
	c.page("groups", c.groups)
	c.page("offsets are edited", c.editOffsets)
	c.page("a group's offsets are deleted", func() (any, error) {
		gone, err := c.admin.DeleteOffsets(c.ctx, c.group, c.everyPartition())
		return "done", errors.Join(err, gone.Error())
	})
	c.page("a group is deleted", func() (any, error) {
		gone, err := c.admin.DeleteGroups(c.ctx, c.group)
		return "done", errors.Join(err, gone.Error())
	})
	c.changeTopics(c.topic + "-made")
	c.page("reassign partitions", c.reassign)
	c.page("quotas", c.quotas)
	c.page("ACLs", c.acls)
	c.page("users", func() (any, error) { return c.users(asked.Settings["new password"]) })
	return map[string]any{"pages": c.shown}, nil
}

func (c *console) page(name string, shown func() (any, error)) {
	answer, err := shown()
	if err != nil {
		answer = map[string]any{"error": err.Error()}
	}
	c.shown[name] = answer
}

// Look until something is so: who asks another broker next may be ahead of it, as pages are not.
func until[T comparable](c *console, wanted T, look func() (T, error)) (T, error) {
	for {
		found, err := look()
		if found == wanted || c.ctx.Err() != nil || (err != nil && !errors.Is(err, kerr.UnknownTopicOrPartition)) {
			return found, err
		}
	}
}

func (c *console) overview() (any, error) {
	metadata, err := c.admin.Metadata(c.ctx)
	if err != nil {
		return nil, err
	}
	versions, err := c.admin.ApiVersions(c.ctx)
	if err != nil {
		return nil, err
	}
	guess := ""
	for _, each := range versions {
		guess = each.VersionGuess()
	}
	healthy := true
	metadata.Topics.EachPartition(func(each kadm.PartitionDetail) {
		healthy = healthy && each.Err == nil && len(each.ISR) == len(each.Replicas) && len(each.OfflineReplicas) == 0
	})
	controller := slices.Contains(metadata.Brokers.NodeIDs(), metadata.Controller)
	return []any{len(metadata.Brokers), controller, healthy, metadata.Cluster != "", guess != ""}, nil
}

func (c *console) brokers() (any, error) {
	brokers, err := c.admin.ListBrokers(c.ctx)
	if err != nil {
		return nil, err
	}
	directories, err := c.admin.DescribeAllLogDirs(c.ctx, nil)
	sizes := 0
	for _, each := range directories {
		err = errors.Join(err, each.Error())
		if each.Size() > 0 {
			sizes++
		}
	}
	settings, more := c.admin.DescribeBrokerConfigs(c.ctx, brokers.NodeIDs()...)
	described := 0
	for _, each := range settings {
		more = errors.Join(more, each.Err)
		if len(each.Configs) > 10 {
			described++
		}
	}
	return []int{len(brokers), sizes, described}, errors.Join(err, more)
}

func (c *console) topics() (any, error) {
	metadata, err := c.admin.Metadata(c.ctx)
	if err != nil {
		return nil, err
	}
	settings, err := c.admin.DescribeTopicConfigs(c.ctx, metadata.Topics.Names()...)
	if err != nil {
		return nil, err
	}
	policy := ""
	settings.On(c.topic, func(found *kadm.ResourceConfig) error {
		for _, each := range found.Configs {
			if each.Key == "cleanup.policy" {
				policy = each.MaybeValue()
			}
		}
		return nil
	})
	shown := metadata.Topics[c.topic]
	return []any{len(shown.Partitions), len(shown.Partitions[0].Replicas), shown.IsInternal, policy}, shown.Err
}

func (c *console) everyPartition() kadm.TopicsSet {
	found, err := c.admin.Metadata(c.ctx, c.topic)
	if err != nil {
		return nil
	}
	return found.Topics.TopicsSet()
}

func (c *console) partitions() (any, error) {
	directories, err := c.admin.DescribeAllLogDirs(c.ctx, c.everyPartition())
	copies := 0
	for _, broker := range directories {
		err = errors.Join(err, broker.Error())
		broker.EachPartition(func(kadm.DescribedLogDirPartition) { copies++ })
	}
	starts, more := c.admin.ListStartOffsets(c.ctx, c.topic)
	ends, most := c.admin.ListEndOffsets(c.ctx, c.topic)
	messages := int64(0)
	ends.Each(func(end kadm.ListedOffset) {
		start, _ := starts.Lookup(end.Topic, end.Partition)
		messages += end.Offset - start.Offset
	})
	return []any{copies, messages}, errors.Join(err, more, most, starts.Error(), ends.Error())
}

func (c *console) setting(topic, name string) (string, error) {
	found, err := c.admin.DescribeTopicConfigs(c.ctx, topic)
	if err != nil {
		return "", err
	}
	for _, each := range found[0].Configs {
		if each.Key == name {
			return each.MaybeValue(), found[0].Err
		}
	}
	return "", fmt.Errorf("no %s: %w", name, found[0].Err)
}

func (c *console) messages() (any, error) {
	from, err := c.admin.ListOffsetsAfterMilli(c.ctx, 1, c.topic)
	ends, more := c.admin.ListEndOffsets(c.ctx, c.topic)
	if err = errors.Join(err, more, from.Error(), ends.Error()); err != nil {
		return nil, err
	}
	places, wanted := map[int32]kgo.Offset{}, int64(0)
	from.Each(func(each kadm.ListedOffset) {
		places[each.Partition] = kgo.NewOffset().At(each.Offset)
		end, _ := ends.Lookup(each.Topic, each.Partition)
		wanted += end.Offset - each.Offset
	})
	c.client.AddConsumePartitions(map[string]map[int32]kgo.Offset{c.topic: places})
	defer c.client.PurgeTopicsFromConsuming(c.topic)
	read := []string{}
	for int64(len(read)) < wanted {
		fetches := c.client.PollFetches(c.ctx)
		if err := fetches.Err(); err != nil {
			return nil, err
		}
		fetches.EachRecord(func(each *kgo.Record) { read = append(read, fmt.Sprintf("%s %s", each.Key, each.Value)) })
	}
	slices.Sort(read)
	return read, nil
}

func (c *console) produce(topic string) error {
	return c.client.ProduceSync(c.ctx, &kgo.Record{
		Topic: topic, Key: []byte("console"), Value: []byte("by Redpanda Console"),
		Headers: []kgo.RecordHeader{{Key: "who", Value: []byte("x")}},
	}).FirstErr()
}

func (c *console) groups() (any, error) {
	listed, err := c.admin.ListGroups(c.ctx)
	if err != nil {
		return nil, err
	}
	described, err := c.admin.DescribeGroups(c.ctx, listed.Groups()...)
	if err != nil {
		return nil, err
	}
	offsets := c.admin.FetchManyOffsets(c.ctx, listed.Groups()...)
	if err := offsets.Error(); err != nil {
		return nil, err
	}
	ends, err := c.admin.ListEndOffsets(c.ctx, offsets.CommittedPartitions().Topics()...)
	if err != nil {
		return nil, err
	}
	shown := map[string]any{}
	for _, each := range listed.Groups() {
		lag := int64(0)
		offsets[each].Fetched.Each(func(at kadm.OffsetResponse) {
			end, _ := ends.Lookup(at.Topic, at.Partition)
			lag += end.Offset - at.At
		})
		about := described[each]
		shown[each] = []any{about.State, len(about.Members), lag, fmt.Sprint(about.Err)}
	}
	return shown, nil
}

func (c *console) editOffsets() (any, error) {
	wanted := kadm.Offsets{}
	c.everyPartition().Each(func(topic string, partition int32) {
		wanted.Add(kadm.Offset{Topic: topic, Partition: partition, At: 0, LeaderEpoch: -1})
	})
	if err := c.admin.CommitAllOffsets(c.ctx, c.group, wanted); err != nil {
		return nil, err
	}
	found, err := c.admin.FetchOffsets(c.ctx, c.group)
	sum := int64(0)
	found.Each(func(each kadm.OffsetResponse) { sum += each.At })
	return sum, err
}

func (c *console) changeTopics(made string) {
	hour := "3600000"
	c.page("topic is created", func() (any, error) {
		created, err := c.admin.CreateTopic(c.ctx, 2, c.copies, map[string]*string{"retention.ms": &hour}, made)
		return created.NumPartitions, errors.Join(err, created.Err)
	})
	c.page("topic is created with defaults", func() (any, error) {
		created, err := c.admin.CreateTopic(c.ctx, -1, -1, nil, made+"-plainly")
		return created.NumPartitions, errors.Join(err, created.Err)
	})
	c.page("topic is changed", func() (any, error) {
		day := "86400000"
		changes := []kadm.AlterConfig{{Op: kadm.SetConfig, Name: "retention.ms", Value: &day}}
		altered, err := c.admin.AlterTopicConfigs(c.ctx, changes, made)
		if err == nil {
			_, err = altered.On(made, nil)
		}
		if err != nil {
			return nil, err
		}
		return until(c, day, func() (string, error) { return c.setting(made, "retention.ms") })
	})
	c.page("topic is grown", func() (any, error) {
		dry, err := c.admin.ValidateCreatePartitions(c.ctx, 1, made)
		grown, more := c.admin.CreatePartitions(c.ctx, 1, made)
		return "done", errors.Join(err, more, dry.Error(), grown.Error())
	})
	c.page("records are deleted", func() (any, error) {
		if err := c.produce(made); err != nil {
			return nil, err
		}
		ends, err := c.admin.ListEndOffsets(c.ctx, made)
		if err != nil {
			return nil, err
		}
		deleted, err := c.admin.DeleteRecords(c.ctx, ends.Offsets())
		low := int64(0)
		deleted.Each(func(each kadm.DeleteRecordsResponse) { low += each.LowWatermark })
		return low, errors.Join(err, deleted.Error())
	})
	c.page("topic is deleted", func() (any, error) {
		gone, err := c.admin.DeleteTopics(c.ctx, made, made+"-plainly")
		return "done", errors.Join(err, gone.Error())
	})
}

// The page limits how fast copies move, on each broker and for the topic, moves them, and ends that.
func (c *console) reassign() (any, error) {
	metadata, err := c.admin.Metadata(c.ctx, c.topic)
	if err != nil {
		return nil, err
	}
	rate, all := "100000000", "*"
	brokers := metadata.Brokers.NodeIDs()
	var errs []error
	throttle := func(op kadm.IncrementalOp) {
		for _, side := range []string{"leader", "follower"} {
			rates := []kadm.AlterConfig{{Op: op, Name: side + ".replication.throttled.rate", Value: &rate}}
			replicas := []kadm.AlterConfig{{Op: op, Name: side + ".replication.throttled.replicas", Value: &all}}
			changed, err := c.admin.AlterBrokerConfigs(c.ctx, rates, brokers...)
			errs = append(errs, err)
			more, err := c.admin.AlterTopicConfigs(c.ctx, replicas, c.topic)
			errs = append(errs, err)
			for _, each := range append(changed, more...) {
				errs = append(errs, each.Err)
			}
		}
	}
	throttle(kadm.SetConfig)
	var wanted kadm.AlterPartitionAssignmentsReq
	for _, each := range metadata.Topics[c.topic].Partitions {
		wanted.Assign(each.Topic, each.Partition, slices.Clone(each.Replicas))
	}
	moved, err := c.admin.AlterPartitionAssignments(c.ctx, wanted)
	errs = append(errs, err, moved.Error())
	_, err = c.admin.ListPartitionReassignments(c.ctx, nil)
	errs = append(errs, err)
	throttle(kadm.DeleteConfig)
	return "done", errors.Join(errs...)
}

func (c *console) quotas() (any, error) {
	alice, value := "alice", 1e6
	set := func(remove bool) error {
		changed, err := c.admin.AlterClientQuotas(c.ctx, []kadm.AlterClientQuotaEntry{{
			Entity: kadm.ClientQuotaEntity{{Type: "user", Name: &alice}},
			Ops:    []kadm.AlterClientQuotaOp{{Key: "consumer_byte_rate", Value: value, Remove: remove}},
		}})
		for _, each := range changed {
			err = errors.Join(err, each.Err)
		}
		return err
	}
	if err := set(false); err != nil {
		return nil, err
	}
	found, err := until(c, 1, func() (int, error) {
		found, err := c.admin.DescribeClientQuotas(c.ctx, false, nil)
		return len(found), err
	})
	return found, errors.Join(err, set(true))
}

func (c *console) acls() (any, error) {
	every := kadm.NewACLs().AnyResource().ResourcePatternType(kadm.ACLPatternAny).Operations().
		Allow().AllowHosts().Deny().DenyHosts()
	count := func() (int, error) {
		found, err := c.admin.DescribeACLs(c.ctx, every)
		n := 0
		for _, each := range found {
			n += len(each.Described)
			err = errors.Join(err, each.Err)
		}
		return n, err
	}
	before, err := count()
	if err != nil {
		return nil, err
	}
	wanted := kadm.NewACLs().Topics(c.topic).Groups(c.group).ResourcePatternType(kadm.ACLPatternLiteral).
		Operations(kadm.OpRead).Allow("User:an-application").AllowHosts("*")
	made, err := c.admin.CreateACLs(c.ctx, wanted)
	for _, each := range made {
		err = errors.Join(err, each.Err)
	}
	during, more := until(c, before+2, count)
	gone, most := c.admin.DeleteACLs(c.ctx, wanted)
	for _, each := range gone {
		most = errors.Join(most, each.Err)
	}
	after, last := until(c, before, count)
	return []int{during - before, after - before}, errors.Join(err, more, most, last)
}

func (c *console) users(password string) (any, error) {
	const name = "a-user"
	altered, err := c.admin.AlterUserSCRAMs(c.ctx, nil, []kadm.UpsertSCRAM{{
		User: name, Mechanism: kadm.ScramSha256, Iterations: 4096, Password: password,
	}})
	if err = errors.Join(err, altered.Error()); err != nil {
		return nil, err
	}
	known, err := until(c, true, func() (bool, error) {
		found, err := c.admin.DescribeUserSCRAMs(c.ctx)
		return len(found[name].CredInfos) == 1, err
	})
	gone, more := c.admin.AlterUserSCRAMs(c.ctx, []kadm.DeleteSCRAM{{User: name, Mechanism: kadm.ScramSha256}}, nil)
	return known, errors.Join(err, more, gone.Error())
}
