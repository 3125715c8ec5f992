// Drives one kafka-go client by the job that stands in the first line of standard input, and tells what happens in lines of JSON.
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

	"github.com/segmentio/kafka-go"
)

// Job is the first line of standard input.
type Job struct {
	Op        string   `json:"op"`
	Bootstrap string   `json:"bootstrap"`
	Topic     string   `json:"topic"`
	Acks      string   `json:"acks"`
	Codec     string   `json:"codec"`
	PauseMs   int      `json:"pause_ms"`
	Records   []Record `json:"records"`
	Partition int      `json:"partition"`
	Offset    int64    `json:"offset"`
	TimeMs    *int64   `json:"time_ms"`
	Count     int      `json:"count"`
	Group     string   `json:"group"`
	SessionMs int      `json:"session_ms"`
	Steps     []Step   `json:"steps"`
	// Security is absent when the listener is open.
	Security *Security `json:"security"`
}

// Record is what is produced and what is read; a key or value that is absent is null.
type Record struct {
	Event     string       `json:"event,omitempty"`
	Partition *int         `json:"partition,omitempty"`
	Offset    int64        `json:"offset"`
	Key       *string      `json:"key"`
	Value     *string      `json:"value"`
	Headers   [][2]*string `json:"headers"`
	Timestamp int64        `json:"timestamp"`
}

var out sync.Mutex

func tell(event any) {
	out.Lock()
	defer out.Unlock()
	encoded, err := json.Marshal(event)
	if err != nil {
		panic(err)
	}
	os.Stdout.Write(append(encoded, '\n'))
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

// name is Kafka's name of an error, as kafka-go titles it, or its text.
func name(err error) string {
	var code kafka.Error
	if errors.As(err, &code) {
		return strings.ToUpper(strings.ReplaceAll(code.Title(), " ", "_"))
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

func produce(job *Job) {
	codecs := map[string]kafka.Compression{"gzip": kafka.Gzip, "snappy": kafka.Snappy, "lz4": kafka.Lz4, "zstd": kafka.Zstd}
	writer := &kafka.Writer{
		Addr: kafka.TCP(servers(job)...), Topic: job.Topic, Compression: codecs[job.Codec], MaxAttempts: 100,
		RequiredAcks: map[string]kafka.RequiredAcks{"0": kafka.RequireNone, "1": kafka.RequireOne, "all": kafka.RequireAll}[job.Acks],
		BatchTimeout: 5 * time.Millisecond, WriteBackoffMin: 20 * time.Millisecond, WriteBackoffMax: 200 * time.Millisecond,
		Balancer: &kafka.Hash{}, Transport: job.Security.transport(),
	}
	if job.Records[0].Partition != nil {
		// Every record of a job is for the same partition, or for none.
		writer.Balancer = kafka.BalancerFunc(func(kafka.Message, ...int) int { return *job.Records[0].Partition })
	}
	messages := make([]kafka.Message, len(job.Records))
	for i, it := range job.Records {
		messages[i] = kafka.Message{Key: bytes(it.Key), Value: bytes(it.Value)}
		if it.Timestamp != 0 {
			messages[i].Time = time.UnixMilli(it.Timestamp)
		}
		for _, header := range it.Headers {
			messages[i].Headers = append(messages[i].Headers, kafka.Header{Key: *header[0], Value: bytes(header[1])})
		}
	}
	err := writer.WriteMessages(context.Background(), messages...)
	var each kafka.WriteErrors
	errors.As(err, &each)
	for i := range messages {
		failed := err
		if each != nil {
			failed = each[i]
		}
		if failed != nil {
			tell(map[string]any{"event": "fail", "i": i, "error": name(failed)})
		} else {
			tell(map[string]any{"event": "ack", "i": i})
		}
	}
	must(0, writer.Close())
}

func show(message kafka.Message) {
	found := Record{
		Event: "record", Partition: &message.Partition, Offset: message.Offset, Key: text(message.Key), Value: text(message.Value),
		Timestamp: message.Time.UnixMilli(), Headers: [][2]*string{},
	}
	for _, header := range message.Headers {
		found.Headers = append(found.Headers, [2]*string{&header.Key, text(header.Value)})
	}
	tell(found)
}

func reader(job *Job, partition int, offset int64) *kafka.Reader {
	found := kafka.NewReader(kafka.ReaderConfig{
		Brokers: servers(job), Topic: job.Topic, Partition: partition, MaxBytes: 1 << 24, MaxWait: 200 * time.Millisecond,
		Dialer: job.Security.dialer(),
	})
	must(0, found.SetOffset(offset))
	return found
}

func read(job *Job) {
	from := reader(job, job.Partition, job.Offset)
	defer from.Close()
	if job.TimeMs != nil {
		must(0, from.SetOffsetAt(context.Background(), time.UnixMilli(*job.TimeMs)))
	}
	for range job.Count {
		show(must(from.ReadMessage(context.Background())))
	}
}

// generation reads what a member owns between two rebalances, and commits as it goes: at its end there is nobody to commit to.
func generation(job *Job, of *kafka.Generation) {
	owned := []int{}
	for _, it := range of.Assignments[job.Topic] {
		owned = append(owned, it.ID)
	}
	tell(map[string]any{"event": "assigned", "partitions": owned, "incremental": false})
	for _, it := range of.Assignments[job.Topic] {
		offset := it.Offset
		if offset < 0 {
			offset = kafka.FirstOffset
		}
		of.Start(func(ctx context.Context) {
			from := reader(job, it.ID, offset)
			defer from.Close()
			for {
				message, err := from.ReadMessage(ctx)
				if err != nil {
					return
				}
				show(message)
				next := map[string]map[int]int64{job.Topic: {it.ID: message.Offset + 1}}
				if err := of.CommitOffsets(next); err != nil {
					tell(map[string]any{"event": "warning", "error": name(err)})
				}
			}
		})
	}
}

func group(job *Job, stop <-chan struct{}) {
	config := kafka.ConsumerGroupConfig{
		ID: job.Group, Brokers: servers(job), Topics: []string{job.Topic}, StartOffset: kafka.FirstOffset,
		HeartbeatInterval: 200 * time.Millisecond, GroupBalancers: []kafka.GroupBalancer{kafka.RangeGroupBalancer{}},
		JoinGroupBackoff: 100 * time.Millisecond,
	}
	if job.SessionMs > 0 {
		config.SessionTimeout = time.Duration(job.SessionMs) * time.Millisecond
	}
	consumer := must(kafka.NewConsumerGroup(config))
	ctx, cancel := context.WithCancel(context.Background())
	go func() { <-stop; cancel() }()
	for ctx.Err() == nil {
		next, err := consumer.Next(ctx)
		if err != nil {
			if ctx.Err() == nil {
				tell(map[string]any{"event": "warning", "error": name(err)})
			}
			continue
		}
		generation(job, next)
	}
	must(0, consumer.Close())
}

func main() {
	stdin := bufio.NewReaderSize(os.Stdin, 1<<20)
	var job Job
	must(0, json.Unmarshal(must(stdin.ReadBytes('\n')), &job))
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
	case "session":
		session(&job, stop)
	default:
		panic(fmt.Sprintf("no op %q", job.Op))
	}
	tell(map[string]any{"event": "done"})
}
