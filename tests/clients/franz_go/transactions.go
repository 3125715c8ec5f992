package main

import (
	"context"
	"fmt"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"
)

// transactor is what a producer in transactions has in common, with and without a group.
type transactor struct {
	*kgo.Client
	end func(context.Context, kgo.TransactionEndTry) error
	// begin is that of the session, when there is one.
	begin func() error
}

func newTransactor(job *Job) transactor {
	opts := []kgo.Opt{kgo.TransactionalID(job.TransactionalID), kgo.RecordPartitioner(kgo.ManualPartitioner())}
	// A minute, and not the second that 20 attempts take: on a busy machine a coordinator comes back later.
	opts = append(opts, kgo.RequestRetries(1200))
	if job.TimeoutMs != 0 {
		opts = append(opts, kgo.TransactionTimeout(time.Duration(job.TimeoutMs)*time.Millisecond))
	}
	if job.Group == "" {
		alone := client(job, opts...)
		return transactor{alone, alone.EndTransaction, alone.BeginTransaction}
	}
	opts = append(opts, kgo.ConsumerGroup(job.Group), kgo.ConsumeTopics(job.Steps[1].Source),
		kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()), kgo.FetchIsolationLevel(kgo.ReadCommitted()))
	opts = append(opts, common(job)...)
	session, err := kgo.NewGroupTransactSession(opts...)
	if err != nil {
		panic(err)
	}
	end := func(ctx context.Context, try kgo.TransactionEndTry) error {
		committed, err := session.End(ctx, try)
		if err == nil && bool(try) && !committed {
			return fmt.Errorf("the group has rebalanced: it was aborted")
		}
		return err
	}
	return transactor{session.Client(), end, session.Begin}
}

// transact does the steps of transactions.
func transact(job *Job, stop <-chan struct{}) {
	producer := newTransactor(job)
	defer producer.CloseAllowingRebalance()
	for _, step := range job.Steps {
		event := map[string]any{"event": "result", "do": step.Do}
		if err := producer.step(job, &step, stop); err != nil {
			event["error"] = name(err)
		}
		tell(event)
	}
}

func (producer transactor) step(job *Job, step *Step, stop <-chan struct{}) error {
	ctx, cancel := context.WithTimeout(context.Background(), 60*time.Second)
	defer cancel()
	switch step.Do {
	case "begin":
		return producer.begin()
	case "commit":
		return producer.end(ctx, kgo.TryCommit)
	case "abort":
		return producer.end(ctx, kgo.TryAbort)
	case "send":
		records := []*kgo.Record{}
		for _, it := range step.Records {
			records = append(records, &kgo.Record{Topic: job.Topic, Partition: *it.Partition, Key: bytes(it.Key), Value: bytes(it.Value)})
		}
		return producer.ProduceSync(ctx, records...).FirstErr()
	case "copy":
		for seen := 0; seen < step.Count && ctx.Err() == nil; {
			for _, it := range producer.PollRecords(ctx, step.Count-seen).Records() {
				seen++
				copied := &kgo.Record{Topic: job.Topic, Partition: 0, Key: it.Key, Value: it.Value}
				if err := producer.ProduceSync(ctx, copied).FirstErr(); err != nil {
					return err
				}
			}
		}
		return ctx.Err()
	case "wait":
		<-stop
		return nil
	}
	return fmt.Errorf("no step %q", step.Do)
}
