// Drives one Sarama client by the job that stands in the first line of standard input, and tells what happens in lines of JSON.
// The contract is that of tests/clients/programs.py.
package main

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log"
	"os"
	"strings"
	"sync"
	"time"

	"github.com/IBM/sarama"
)

// Job is the first line of standard input.
type Job struct {
	Op         string   `json:"op"`
	Bootstrap  string   `json:"bootstrap"`
	Topic      string   `json:"topic"`
	Acks       string   `json:"acks"`
	Idempotent bool     `json:"idempotent"`
	Codec      string   `json:"codec"`
	PauseMs    int      `json:"pause_ms"`
	Records    []Record `json:"records"`
	Partition  int32    `json:"partition"`
	Offset     int64    `json:"offset"`
	TimeMs     *int64   `json:"time_ms"`
	Count      int      `json:"count"`
	Group      string   `json:"group"`
	Protocol   string   `json:"protocol"`
	Instance   string   `json:"instance"`
	SessionMs  int      `json:"session_ms"`
	// TransactionalID is that of a job in transactions.
	TransactionalID string `json:"transactional_id"`
	// TimeoutMs is that of a transaction; 0: a minute.
	TimeoutMs int    `json:"timeout_ms"`
	Steps     []Step `json:"steps"`
	// Security is absent when the listener is open.
	Security *Security `json:"security"`
}

// Security says how to log in.
type Security struct {
	CA          string  `json:"ca"`
	Certificate string  `json:"certificate"`
	Key         string  `json:"key"`
	Mechanism   string  `json:"mechanism"`
	Username    string  `json:"username"`
	Password    string  `json:"password"`
	TokenS      float64 `json:"token_s"`
}

// Record is what is produced and what is read; a key or value that is absent is null.
type Record struct {
	Event     string       `json:"event,omitempty"`
	Partition *int32       `json:"partition,omitempty"`
	Offset    int64        `json:"offset"`
	Key       *string      `json:"key"`
	Value     *string      `json:"value"`
	Headers   [][2]*string `json:"headers"`
	Timestamp int64        `json:"timestamp"`
}

var (
	out   sync.Mutex
	lines = bufio.NewWriter(os.Stdout)
)

func tell(event any) {
	out.Lock()
	defer out.Unlock()
	encoded, err := json.Marshal(event)
	if err != nil {
		panic(err)
	}
	lines.Write(append(encoded, '\n'))
	lines.Flush()
}

var names = map[sarama.KError]string{
	sarama.ErrOffsetOutOfRange:        "OFFSET_OUT_OF_RANGE",
	sarama.ErrUnknownTopicOrPartition: "UNKNOWN_TOPIC_OR_PARTITION",
	sarama.ErrTopicAlreadyExists:      "TOPIC_ALREADY_EXISTS",
	sarama.ErrInvalidPartitions:       "INVALID_PARTITIONS",
	sarama.ErrInvalidConfig:           "INVALID_CONFIG",
	sarama.ErrNonEmptyGroup:           "NON_EMPTY_GROUP",
	sarama.KError(90):                 "PRODUCER_FENCED", // Sarama has no name for it
}

// name is Kafka's name of an error, of those that the tests look for, or Sarama's text.
func name(err error) string {
	for code, found := range names {
		if errors.Is(err, code) || strings.Contains(err.Error(), code.Error()) {
			return found
		}
	}
	if strings.HasPrefix(err.Error(), "Invalid value") { // before 1.46 it kept the broker's words of an error, and not its code
		return "INVALID_CONFIG"
	}
	return err.Error()
}

func text(raw []byte) *string {
	if raw == nil {
		return nil
	}
	found := string(raw)
	return &found
}

func encoder(value *string) sarama.Encoder {
	if value == nil {
		return nil
	}
	return sarama.StringEncoder(*value)
}

func config(job *Job) *sarama.Config {
	found := sarama.NewConfig()
	found.Version = sarama.MaxVersion
	found.Metadata.Retry.Max = 100
	found.Metadata.Retry.Backoff = 50 * time.Millisecond
	found.Net.DialTimeout = 5 * time.Second
	secure(found, job.Security)
	return found
}

func must[T any](value T, err error) T {
	if err != nil {
		panic(err)
	}
	return value
}

func servers(job *Job) []string {
	return strings.Split(job.Bootstrap, ",")
}

func produce(job *Job) {
	settings := config(job)
	settings.Producer.RequiredAcks = map[string]sarama.RequiredAcks{"0": sarama.NoResponse, "1": sarama.WaitForLocal, "all": sarama.WaitForAll}[job.Acks]
	settings.Producer.Compression = map[string]sarama.CompressionCodec{
		"": sarama.CompressionNone, "none": sarama.CompressionNone, "gzip": sarama.CompressionGZIP, "snappy": sarama.CompressionSnappy,
		"lz4": sarama.CompressionLZ4, "zstd": sarama.CompressionZSTD,
	}[job.Codec]
	settings.Producer.Idempotent = job.Idempotent
	settings.Net.MaxOpenRequests = 1 // what keeps the order; with idempotence Sarama asks for it
	settings.Producer.Retry.Max = 100
	settings.Producer.Retry.Backoff = 100 * time.Millisecond
	settings.Producer.Return.Successes = true
	settings.Producer.Flush.Frequency = 5 * time.Millisecond
	if job.Records[0].Partition != nil {
		settings.Producer.Partitioner = sarama.NewManualPartitioner
	}
	producer := must(sarama.NewAsyncProducer(servers(job), settings))
	var told sync.WaitGroup
	told.Add(2)
	go func() {
		defer told.Done()
		for done := range producer.Successes() {
			tell(map[string]any{"event": "ack", "i": done.Metadata, "partition": done.Partition, "offset": done.Offset})
		}
	}()
	go func() {
		defer told.Done()
		for failed := range producer.Errors() {
			tell(map[string]any{"event": "fail", "i": failed.Msg.Metadata, "error": name(failed.Err)})
		}
	}()
	for i, it := range job.Records {
		message := &sarama.ProducerMessage{Topic: job.Topic, Key: encoder(it.Key), Value: encoder(it.Value), Metadata: i}
		if it.Partition != nil {
			message.Partition = *it.Partition
		}
		if it.Timestamp != 0 {
			message.Timestamp = time.UnixMilli(it.Timestamp)
		}
		for _, header := range it.Headers {
			message.Headers = append(message.Headers, sarama.RecordHeader{Key: []byte(*header[0]), Value: []byte(*header[1])})
		}
		producer.Input() <- message
		if job.PauseMs > 0 {
			time.Sleep(time.Duration(job.PauseMs) * time.Millisecond)
		}
	}
	producer.AsyncClose()
	told.Wait()
}

func show(message *sarama.ConsumerMessage) {
	found := Record{
		Event: "record", Partition: &message.Partition, Offset: message.Offset, Key: text(message.Key), Value: text(message.Value),
		Timestamp: message.Timestamp.UnixMilli(), Headers: [][2]*string{},
	}
	for _, header := range message.Headers {
		found.Headers = append(found.Headers, [2]*string{text(header.Key), text(header.Value)})
	}
	tell(found)
}

func read(job *Job) {
	client := must(sarama.NewClient(servers(job), config(job)))
	defer client.Close()
	offset := job.Offset
	if job.TimeMs != nil {
		offset = must(client.GetOffset(job.Topic, job.Partition, *job.TimeMs))
	}
	consumer := must(sarama.NewConsumerFromClient(client))
	defer consumer.Close()
	partition := must(consumer.ConsumePartition(job.Topic, job.Partition, offset))
	for range job.Count {
		show(<-partition.Messages())
	}
	partition.Close()
}

// member is told of its partitions: by sessions, or with incremental rebalances one by one, as each is consumed.
type member struct {
	topic       string
	incremental bool
}

func (m *member) Setup(session sarama.ConsumerGroupSession) error {
	if !m.incremental {
		tell(map[string]any{"event": "assigned", "partitions": owned(session.Claims()[m.topic])})
	}
	return nil
}

func (m *member) Cleanup(session sarama.ConsumerGroupSession) error {
	session.Commit()
	if !m.incremental {
		tell(map[string]any{"event": "revoked", "partitions": owned(session.Claims()[m.topic])})
	}
	return nil
}

func (m *member) ConsumeClaim(session sarama.ConsumerGroupSession, claim sarama.ConsumerGroupClaim) error {
	if m.incremental {
		tell(map[string]any{"event": "assigned", "partitions": []int32{claim.Partition()}})
		defer tell(map[string]any{"event": "revoked", "partitions": []int32{claim.Partition()}})
	}
	for message := range claim.Messages() {
		show(message)
		session.MarkMessage(message, "")
	}
	return nil
}

func owned(partitions []int32) []int32 {
	return append([]int32{}, partitions...)
}

func group(job *Job, stop <-chan struct{}) {
	settings := config(job)
	settings.Consumer.Offsets.Initial = sarama.OffsetOldest
	settings.Consumer.Offsets.AutoCommit.Enable = false
	settings.Consumer.Group.Heartbeat.Interval = 200 * time.Millisecond
	settings.Consumer.Group.Rebalance.Retry.Max = 100
	settings.Consumer.Group.Rebalance.Retry.Backoff = 100 * time.Millisecond
	settings.Consumer.Retry.Backoff = 100 * time.Millisecond
	settings.Consumer.MaxWaitTime = 100 * time.Millisecond
	settings.Consumer.Return.Errors = true
	settings.Consumer.Group.InstanceId = job.Instance
	if job.SessionMs > 0 {
		settings.Consumer.Group.Session.Timeout = time.Duration(job.SessionMs) * time.Millisecond
	}
	balance(settings, job.Protocol == "cooperative")
	consumer := must(sarama.NewConsumerGroup(servers(job), job.Group, settings))
	go func() {
		for err := range consumer.Errors() {
			tell(map[string]any{"event": "warning", "error": name(err)})
		}
	}()
	ctx, cancel := context.WithCancel(context.Background())
	go func() { <-stop; cancel() }()
	handler := &member{topic: job.Topic, incremental: job.Protocol == "cooperative"}
	for ctx.Err() == nil {
		if err := consumer.Consume(ctx, []string{job.Topic}, handler); err != nil && ctx.Err() == nil {
			tell(map[string]any{"event": "warning", "error": name(err)})
			time.Sleep(50 * time.Millisecond)
		}
	}
	if err := consumer.Close(); err != nil {
		tell(map[string]any{"event": "warning", "error": name(err)})
	}
}

func main() {
	sarama.Logger = log.New(os.Stderr, "", log.LstdFlags)
	stdin := bufio.NewReaderSize(os.Stdin, 1<<20)
	var job Job
	if err := json.Unmarshal(must(stdin.ReadBytes('\n')), &job); err != nil {
		panic(err)
	}
	stop := make(chan struct{})
	go func() {
		stdin.ReadBytes('\n') // a second line, or the end of the input, is the end of a group member
		close(stop)
	}()
	switch job.Op {
	case "produce":
		produce(&job)
	case "read":
		read(&job)
	case "group":
		group(&job, stop)
	case "admin":
		admin(&job)
	case "transact":
		transact(&job, stop)
	case "session":
		session(&job, stop)
	default:
		panic(fmt.Sprintf("no op %q", job.Op))
	}
	tell(map[string]any{"event": "done"})
}
