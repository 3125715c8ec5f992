package main

import (
	"fmt"
	"time"

	"github.com/IBM/sarama"
)

// transactor does the steps of transactions.
type transactor struct {
	sarama.SyncProducer
	job  *Job
	stop <-chan struct{}
}

func transact(job *Job, stop <-chan struct{}) {
	settings := config(job)
	settings.Producer.Transaction.ID = job.TransactionalID
	settings.Producer.Transaction.Timeout = timeout(job)
	settings.Producer.Idempotent = true
	settings.Producer.RequiredAcks = sarama.WaitForAll
	settings.Producer.Partitioner = sarama.NewManualPartitioner
	settings.Producer.Return.Successes = true
	settings.Net.MaxOpenRequests = 1
	// A minute, and not the 5 to 10 s of config and of Sarama: on a busy machine a coordinator comes back later.
	settings.Metadata.Retry.Max = 1200
	settings.Producer.Retry.Max = 600
	settings.Producer.Transaction.Retry.Max = 600
	producer := transactor{must(sarama.NewSyncProducer(servers(job), settings)), job, stop}
	defer producer.Close()
	for _, step := range job.Steps {
		event := map[string]any{"event": "result", "do": step.Do}
		if err := producer.step(&step); err != nil {
			event["error"] = name(err)
		}
		tell(event)
	}
}

func timeout(job *Job) time.Duration {
	if job.TimeoutMs == 0 {
		return time.Minute
	}
	return time.Duration(job.TimeoutMs) * time.Millisecond
}

func (producer transactor) step(step *Step) error {
	switch step.Do {
	case "begin":
		return producer.BeginTxn()
	case "commit":
		return producer.CommitTxn()
	case "abort":
		return producer.AbortTxn()
	case "send":
		messages := []*sarama.ProducerMessage{}
		for _, it := range step.Records {
			messages = append(messages, &sarama.ProducerMessage{
				Topic: producer.job.Topic, Partition: *it.Partition, Key: encoder(it.Key), Value: encoder(it.Value),
			})
		}
		return producer.SendMessages(messages)
	case "copy":
		return producer.copy(step)
	case "wait":
		<-producer.stop
		return nil
	}
	return fmt.Errorf("no step %q", step.Do)
}

// copy reads from where the group has committed, without being a member: a transaction needs only the group's name.
func (producer transactor) copy(step *Step) error {
	settings := config(producer.job)
	settings.Consumer.IsolationLevel = sarama.ReadCommitted
	client := must(sarama.NewClient(servers(producer.job), settings))
	admin := must(sarama.NewClusterAdminFromClient(client))
	defer admin.Close()
	group := producer.job.Group
	committed := must(admin.ListConsumerGroupOffsets(group, map[string][]int32{step.Source: {0}}))
	next := max(committed.GetBlock(step.Source, 0).Offset, 0)
	consumer := must(sarama.NewConsumerFromClient(client))
	defer consumer.Close()
	partition := must(consumer.ConsumePartition(step.Source, 0, next))
	defer partition.Close()
	for range step.Count {
		it := <-partition.Messages()
		copied := &sarama.ProducerMessage{Topic: producer.job.Topic, Value: sarama.ByteEncoder(it.Value)}
		if _, _, err := producer.SendMessage(copied); err != nil {
			return err
		}
		next = it.Offset + 1
	}
	offsets := map[string][]*sarama.PartitionOffsetMetadata{step.Source: {{Partition: 0, Offset: next}}}
	return producer.AddOffsetsToTxn(offsets, group)
}
