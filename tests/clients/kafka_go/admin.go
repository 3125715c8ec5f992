package main

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/segmentio/kafka-go"
)

// Step is one administrative request; each is told of with one event.
type Step struct {
	Do         string            `json:"do"`
	Topic      string            `json:"topic"`
	Partitions int               `json:"partitions"`
	Factor     int               `json:"replication_factor"`
	Config     map[string]string `json:"config"`
}

func admin(job *Job) {
	cl := &kafka.Client{Addr: kafka.TCP(servers(job)...), Timeout: 20 * time.Second}
	for _, step := range job.Steps {
		result, err := perform(context.Background(), cl, &step)
		if err != nil {
			tell(map[string]any{"event": "result", "do": step.Do, "error": name(err)})
			continue
		}
		tell(map[string]any{"event": "result", "do": step.Do, "result": result})
	}
}

func perform(ctx context.Context, cl *kafka.Client, step *Step) (any, error) {
	switch step.Do {
	case "create_topic":
		topic := kafka.TopicConfig{Topic: step.Topic, NumPartitions: step.Partitions, ReplicationFactor: step.Factor}
		for key, value := range step.Config {
			topic.ConfigEntries = append(topic.ConfigEntries, kafka.ConfigEntry{ConfigName: key, ConfigValue: value})
		}
		found, err := cl.CreateTopics(ctx, &kafka.CreateTopicsRequest{Topics: []kafka.TopicConfig{topic}})
		if err != nil {
			return nil, err
		}
		return nil, found.Errors[step.Topic]
	case "delete_topic":
		found, err := cl.DeleteTopics(ctx, &kafka.DeleteTopicsRequest{Topics: []string{step.Topic}})
		if err != nil {
			return nil, err
		}
		return nil, found.Errors[step.Topic]
	case "list_topics":
		found, err := cl.Metadata(ctx, &kafka.MetadataRequest{})
		if err != nil {
			return nil, err
		}
		names := []string{}
		for _, topic := range found.Topics {
			names = append(names, topic.Name)
		}
		return names, nil
	case "describe_topic":
		found, err := cl.Metadata(ctx, &kafka.MetadataRequest{Topics: []string{step.Topic}})
		if err != nil {
			return nil, err
		}
		partitions := found.Topics[0].Partitions
		return map[string]any{"partitions": len(partitions), "replicas": len(partitions[0].Replicas)}, nil
	case "describe_configs":
		return configs(ctx, cl, step)
	case "alter_configs":
		return nil, alter(ctx, cl, step)
	}
	return nil, fmt.Errorf("no step %q", step.Do)
}

func configs(ctx context.Context, cl *kafka.Client, step *Step) (any, error) {
	resource := kafka.DescribeConfigRequestResource{ResourceType: kafka.ResourceTypeTopic, ResourceName: step.Topic}
	found, err := cl.DescribeConfigs(ctx, &kafka.DescribeConfigsRequest{Resources: []kafka.DescribeConfigRequestResource{resource}})
	if err != nil {
		return nil, err
	}
	values := map[string]any{}
	for _, it := range found.Resources[0].ConfigEntries {
		values[it.ConfigName] = map[string]any{"value": it.ConfigValue, "default": it.ConfigSource != 1}
	}
	return values, found.Resources[0].Error
}

func alter(ctx context.Context, cl *kafka.Client, step *Step) error {
	resource := kafka.IncrementalAlterConfigsRequestResource{ResourceType: kafka.ResourceTypeTopic, ResourceName: step.Topic}
	for key, value := range step.Config {
		change := kafka.IncrementalAlterConfigsRequestConfig{Name: key, Value: value, ConfigOperation: kafka.ConfigOperationSet}
		resource.Configs = append(resource.Configs, change)
	}
	request := &kafka.IncrementalAlterConfigsRequest{Resources: []kafka.IncrementalAlterConfigsRequestResource{resource}}
	found, err := cl.IncrementalAlterConfigs(ctx, request)
	if err != nil {
		return err
	}
	return errors.Join(err, found.Resources[0].Error)
}
