// Drives one franz-go client by the job that stands in the first line of standard input, and tells what happens in lines of JSON.
// The contract is that of tests/clients/programs.py.
package main

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"strings"
	"sync"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
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

// name is Kafka's name of an error, or its text when it is the client's own.
func name(err error) string {
	var kafka *kerr.Error
	if errors.As(err, &kafka) {
		return kafka.Message
	}
	return err.Error()
}

func bytes(text *string) []byte {
	if text == nil {
		return nil
	}
	return append([]byte{}, *text...)
}

func text(raw []byte) *string {
	if raw == nil {
		return nil
	}
	found := string(raw)
	return &found
}

// common are the options of all clients.
func common(job *Job) []kgo.Opt {
	return append(
		secured(job),
		kgo.SeedBrokers(strings.Split(job.Bootstrap, ",")...),
		kgo.MetadataMinAge(100*time.Millisecond),
		kgo.RetryBackoffFn(func(int) time.Duration { return 50 * time.Millisecond }),
	)
}

func client(job *Job, opts ...kgo.Opt) *kgo.Client {
	found, err := kgo.NewClient(append(common(job), opts...)...)
	if err != nil {
		panic(err)
	}
	return found
}

func produce(job *Job) {
	acks := map[string]kgo.Acks{"0": kgo.NoAck(), "1": kgo.LeaderAck(), "all": kgo.AllISRAcks()}[job.Acks]
	codec := map[string]kgo.CompressionCodec{
		"": kgo.NoCompression(), "none": kgo.NoCompression(), "gzip": kgo.GzipCompression(), "snappy": kgo.SnappyCompression(),
		"lz4": kgo.Lz4Compression(), "zstd": kgo.ZstdCompression(),
	}[job.Codec]
	opts := []kgo.Opt{kgo.RequiredAcks(acks), kgo.ProducerBatchCompression(codec)}
	if !job.Idempotent {
		// One request in flight: without sequence numbers that is what keeps the order.
		opts = append(opts, kgo.DisableIdempotentWrite(), kgo.MaxProduceRequestsInflightPerBroker(1))
	}
	if len(job.Records) > 0 && job.Records[0].Partition != nil {
		opts = append(opts, kgo.RecordPartitioner(kgo.ManualPartitioner()))
	}
	producer := client(job, opts...)
	defer producer.Close()
	for i, it := range job.Records {
		record := &kgo.Record{Topic: job.Topic, Key: bytes(it.Key), Value: bytes(it.Value)}
		if it.Partition != nil {
			record.Partition = *it.Partition
		}
		if it.Timestamp != 0 {
			record.Timestamp = time.UnixMilli(it.Timestamp)
		}
		for _, header := range it.Headers {
			record.Headers = append(record.Headers, kgo.RecordHeader{Key: *header[0], Value: bytes(header[1])})
		}
		producer.Produce(context.Background(), record, func(done *kgo.Record, err error) {
			if err != nil {
				tell(map[string]any{"event": "fail", "i": i, "error": name(err)})
				return
			}
			tell(map[string]any{"event": "ack", "i": i, "partition": done.Partition, "offset": done.Offset})
		})
		if job.PauseMs > 0 {
			time.Sleep(time.Duration(job.PauseMs) * time.Millisecond)
		}
	}
	if err := producer.Flush(context.Background()); err != nil {
		panic(err)
	}
}

func show(record *kgo.Record) {
	found := Record{
		Event: "record", Partition: &record.Partition, Offset: record.Offset, Key: text(record.Key), Value: text(record.Value),
		Timestamp: record.Timestamp.UnixMilli(), Headers: [][2]*string{},
	}
	for _, header := range record.Headers {
		found.Headers = append(found.Headers, [2]*string{&header.Key, text(header.Value)})
	}
	tell(found)
}

func read(job *Job) {
	offset := kgo.NewOffset().At(job.Offset)
	if job.TimeMs != nil {
		offset = kgo.NewOffset().AfterMilli(*job.TimeMs)
	}
	where := map[string]map[int32]kgo.Offset{job.Topic: {job.Partition: offset}}
	consumer := client(job, kgo.ConsumePartitions(where))
	defer consumer.Close()
	for seen := 0; seen < job.Count; {
		fetches := consumer.PollFetches(context.Background())
		fetches.EachError(func(_ string, _ int32, err error) { tell(map[string]any{"event": "warning", "error": name(err)}) })
		for _, record := range fetches.Records() {
			if seen++; seen <= job.Count {
				show(record)
			}
		}
	}
}

func partitions(of map[string][]int32) []int32 {
	found := []int32{}
	for _, some := range of {
		found = append(found, some...)
	}
	return found
}

func group(job *Job, stop <-chan struct{}) {
	moved := func(event string) func(context.Context, *kgo.Client, map[string][]int32) {
		return func(_ context.Context, _ *kgo.Client, of map[string][]int32) {
			tell(map[string]any{"event": event, "partitions": partitions(of)})
		}
	}
	opts := []kgo.Opt{
		kgo.ConsumerGroup(job.Group), kgo.ConsumeTopics(job.Topic), kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()),
		kgo.HeartbeatInterval(200 * time.Millisecond), kgo.DisableAutoCommit(),
		kgo.OnPartitionsAssigned(moved("assigned")), kgo.OnPartitionsRevoked(moved("revoked")), kgo.OnPartitionsLost(moved("lost")),
	}
	if job.SessionMs > 0 {
		opts = append(opts, kgo.SessionTimeout(time.Duration(job.SessionMs)*time.Millisecond))
	}
	if job.Instance != "" {
		opts = append(opts, kgo.InstanceID(job.Instance))
	}
	switch job.Protocol {
	case "range":
		opts = append(opts, kgo.Balancers(kgo.RangeBalancer()))
	case "cooperative":
		opts = append(opts, kgo.Balancers(kgo.CooperativeStickyBalancer()))
	case "consumer":
		opts = append(opts, kgo.Balancers(kgo.RangeBalancer()), serverSide())
	}
	consumer := client(job, opts...)
	ctx, cancel := context.WithCancel(context.Background())
	go func() { <-stop; cancel() }()
	for ctx.Err() == nil {
		fetches := consumer.PollFetches(ctx)
		if ctx.Err() != nil {
			break
		}
		fetches.EachError(func(_ string, _ int32, err error) { tell(map[string]any{"event": "warning", "error": name(err)}) })
		for _, record := range fetches.Records() {
			show(record)
		}
	}
	if err := consumer.CommitUncommittedOffsets(context.Background()); err != nil {
		tell(map[string]any{"event": "warning", "error": name(err)})
	}
	consumer.CloseAllowingRebalance()
}

func main() {
	stdin := bufio.NewReaderSize(os.Stdin, 1<<20)
	line, err := stdin.ReadBytes('\n')
	if err != nil {
		panic(err)
	}
	var job Job
	if err := json.Unmarshal(line, &job); err != nil {
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
