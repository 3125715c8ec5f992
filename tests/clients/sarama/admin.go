package main

import (
	"fmt"
	"slices"
	"strconv"

	"github.com/IBM/sarama"
)

// Step is one administrative request; each is told of with one event.
type Step struct {
	Do         string            `json:"do"`
	Topic      string            `json:"topic"`
	Partitions int32             `json:"partitions"`
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
	client := must(sarama.NewClient(servers(job), config(job)))
	admin := must(sarama.NewClusterAdminFromClient(client))
	defer admin.Close()
	for _, step := range job.Steps {
		result, err := perform(client, admin, &step)
		if err != nil {
			tell(map[string]any{"event": "result", "do": step.Do, "error": name(err)})
			continue
		}
		tell(map[string]any{"event": "result", "do": step.Do, "result": result})
	}
}

func perform(client sarama.Client, admin sarama.ClusterAdmin, step *Step) (any, error) {
	switch step.Do {
	case "create_topic":
		entries := map[string]*string{}
		for key, value := range step.Config {
			entries[key] = &value
		}
		detail := &sarama.TopicDetail{NumPartitions: step.Partitions, ReplicationFactor: step.Factor, ConfigEntries: entries}
		return nil, admin.CreateTopic(step.Topic, detail, false)
	case "describe_topic":
		found, err := admin.DescribeTopics([]string{step.Topic})
		if err != nil {
			return nil, err
		}
		partitions := found[0].Partitions
		return map[string]any{"partitions": len(partitions), "replicas": len(partitions[0].Replicas)}, nil
	case "list_topics":
		found, err := admin.ListTopics()
		topics := []string{}
		for topic := range found {
			topics = append(topics, topic)
		}
		slices.Sort(topics)
		return topics, err
	case "delete_topic":
		return nil, admin.DeleteTopic(step.Topic)
	case "create_partitions":
		return nil, admin.CreatePartitions(step.Topic, step.Partitions, nil, false)
	case "describe_configs":
		found, err := admin.DescribeConfig(sarama.ConfigResource{Type: sarama.TopicResource, Name: step.Topic})
		values := map[string]any{}
		for _, it := range found {
			values[it.Name] = map[string]any{"value": it.Value, "default": it.Source != sarama.SourceTopic}
		}
		return values, err
	case "alter_configs":
		entries := map[string]sarama.IncrementalAlterConfigsEntry{}
		for key, value := range step.Config {
			entries[key] = sarama.IncrementalAlterConfigsEntry{Operation: sarama.IncrementalAlterConfigsOperationSet, Value: &value}
		}
		return nil, admin.IncrementalAlterConfig(sarama.TopicResource, step.Topic, entries, false)
	case "delete_records":
		return nil, admin.DeleteRecords(step.Topic, map[int32]int64{step.Partition: step.Offset})
	case "list_offset":
		return listOffset(admin, step)
	case "describe_cluster":
		return describeCluster(client)
	}
	return groups(admin, step)
}

// describeCluster asks by itself: Sarama's does not tell the cluster's id, nor which of the brokers are fenced.
func describeCluster(client sarama.Client) (any, error) {
	broker, err := client.Controller()
	if err != nil {
		return nil, err
	}
	answer, err := broker.GetMetadata(&sarama.MetadataRequest{Version: 5, Topics: []string{}})
	if err != nil {
		return nil, err
	}
	ids := []int32{}
	for _, it := range answer.Brokers {
		ids = append(ids, it.ID())
	}
	return map[string]any{"brokers": ids, "cluster_id": answer.ClusterID}, nil
}

func groups(admin sarama.ClusterAdmin, step *Step) (any, error) {
	switch step.Do {
	case "list_groups":
		found, err := admin.ListConsumerGroups()
		ids := []string{}
		for id := range found {
			ids = append(ids, id)
		}
		slices.Sort(ids)
		return ids, err
	case "describe_group":
		found, err := admin.DescribeConsumerGroups([]string{step.Group})
		if err != nil {
			return nil, err
		}
		return map[string]any{"state": found[0].State, "members": len(found[0].Members), "type": found[0].ProtocolType}, nil
	case "committed":
		found, err := admin.ListConsumerGroupOffsets(step.Group, nil)
		if err != nil {
			return nil, err
		}
		offsets := map[string]int64{}
		for partition, block := range found.Blocks[step.Topic] {
			offsets[strconv.Itoa(int(partition))] = block.Offset
		}
		return offsets, nil
	case "delete_group":
		return nil, admin.DeleteConsumerGroup(step.Group)
	}
	return nil, fmt.Errorf("no step %q", step.Do)
}
