package main

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
)

// Step is one administrative request; each is told of with one event.
type Step struct {
	Do         string            `json:"do"`
	Topic      string            `json:"topic"`
	Partitions int               `json:"partitions"`
	Factor     int16             `json:"replication_factor"`
	Config     map[string]string `json:"config"`
	Partition  int32             `json:"partition"`
	Offset     int64             `json:"offset"`
	At         string            `json:"at"`
	Group      string            `json:"group"`
	Source     string            `json:"source"`
	Count      int               `json:"count"`
	Records    []Record          `json:"records"`
}

func admin(job *Job) {
	cl := kadm.NewClient(client(job))
	defer cl.Close()
	for _, step := range job.Steps {
		ctx, cancel := context.WithTimeout(context.Background(), 30*time.Second)
		result, err := perform(ctx, cl, &step)
		cancel()
		if err != nil {
			tell(map[string]any{"event": "result", "do": step.Do, "error": name(err)})
			continue
		}
		tell(map[string]any{"event": "result", "do": step.Do, "result": result})
	}
}

func perform(ctx context.Context, cl *kadm.Client, step *Step) (any, error) {
	switch step.Do {
	case "create_topic":
		config := map[string]*string{}
		for key, value := range step.Config {
			config[key] = kadm.StringPtr(value)
		}
		found, err := cl.CreateTopics(ctx, int32(step.Partitions), step.Factor, config, step.Topic)
		return nil, errors.Join(err, found[step.Topic].Err)
	case "describe_topic":
		found, err := cl.ListTopics(ctx, step.Topic)
		if err != nil {
			return nil, err
		}
		detail := found[step.Topic]
		return map[string]any{"partitions": len(detail.Partitions), "replicas": detail.Partitions.NumReplicas()}, detail.Err
	case "list_topics":
		found, err := cl.ListTopics(ctx)
		return found.Names(), err
	case "describe_configs":
		return configs(ctx, cl, step)
	case "alter_configs":
		return nil, alter(ctx, cl, step)
	case "create_partitions":
		found, err := cl.UpdatePartitions(ctx, step.Partitions, step.Topic)
		return nil, errors.Join(err, found[step.Topic].Err)
	case "delete_topic":
		found, err := cl.DeleteTopics(ctx, step.Topic)
		return nil, errors.Join(err, found[step.Topic].Err)
	case "delete_records":
		offsets := kadm.Offsets{}
		offsets.AddOffset(step.Topic, step.Partition, step.Offset, -1)
		found, err := cl.DeleteRecords(ctx, offsets)
		if err != nil {
			return nil, err
		}
		return found[step.Topic][step.Partition].LowWatermark, found[step.Topic][step.Partition].Err
	case "list_offset":
		return listOffset(ctx, cl, step)
	case "guess_version":
		return guessVersion(ctx, cl)
	case "describe_cluster":
		found, err := cl.BrokerMetadata(ctx)
		return map[string]any{"cluster_id": found.Cluster, "brokers": found.Brokers.NodeIDs()}, err
	}
	return groups(ctx, cl, step)
}

func configs(ctx context.Context, cl *kadm.Client, step *Step) (any, error) {
	found, err := cl.DescribeTopicConfigs(ctx, step.Topic)
	if err != nil {
		return nil, err
	}
	one, err := found.On(step.Topic, nil)
	values := map[string]any{}
	for _, it := range one.Configs {
		values[it.Key] = map[string]any{"value": it.MaybeValue(), "default": it.Source.String() != "DYNAMIC_TOPIC_CONFIG"}
	}
	return values, errors.Join(err, one.Err)
}

func alter(ctx context.Context, cl *kadm.Client, step *Step) error {
	var changes []kadm.AlterConfig
	for key, value := range step.Config {
		changes = append(changes, kadm.AlterConfig{Op: kadm.SetConfig, Name: key, Value: kadm.StringPtr(value)})
	}
	found, err := cl.AlterTopicConfigs(ctx, changes, step.Topic)
	if err != nil {
		return err
	}
	one, err := found.On(step.Topic, nil)
	return errors.Join(err, one.Err)
}

func listOffset(ctx context.Context, cl *kadm.Client, step *Step) (any, error) {
	var found kadm.ListedOffsets
	var err error
	switch step.At {
	case "earliest":
		found, err = cl.ListStartOffsets(ctx, step.Topic)
	case "latest":
		found, err = cl.ListEndOffsets(ctx, step.Topic)
	default:
		var ms int64
		if ms, err = strconv.ParseInt(step.At, 10, 64); err == nil {
			found, err = cl.ListOffsetsAfterMilli(ctx, ms, step.Topic)
		}
	}
	if err != nil {
		return nil, err
	}
	one, _ := found.Lookup(step.Topic, step.Partition)
	return one.Offset, one.Err
}

func groups(ctx context.Context, cl *kadm.Client, step *Step) (any, error) {
	switch step.Do {
	case "list_groups":
		found, err := cl.ListGroups(ctx)
		return found.Groups(), err
	case "describe_group":
		found, err := cl.DescribeGroups(ctx, step.Group)
		if err != nil {
			return nil, err
		}
		one := found[step.Group]
		return map[string]any{"state": one.State, "members": len(one.Members), "type": one.ProtocolType}, one.Err
	case "describe_consumer_group":
		return describeConsumerGroup(ctx, cl, step.Group)
	case "committed":
		found, err := cl.FetchOffsets(ctx, step.Group)
		offsets := map[string]int64{}
		found.Each(func(it kadm.OffsetResponse) {
			if it.Topic == step.Topic {
				offsets[strconv.Itoa(int(it.Partition))] = it.At
			}
		})
		return offsets, err
	case "delete_group":
		found, err := cl.DeleteGroups(ctx, step.Group)
		return nil, errors.Join(err, found[step.Group].Err)
	}
	return nil, fmt.Errorf("no step %q", step.Do)
}
