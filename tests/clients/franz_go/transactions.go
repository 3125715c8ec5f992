package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
)

// transactor is what a producer in transactions has in common, with and without a group.
type transactor struct {
	*kgo.Client
	end func(context.Context, kgo.TransactionEndTry) error
	// begin is that of the session, when there is one.
	begin func() error
	// sent is what the open transaction has; nothing in a group, whose session ends its transactions itself.
	sent []*kgo.Record
}

func newTransactor(job *Job) *transactor {
	opts := []kgo.Opt{kgo.TransactionalID(job.TransactionalID), kgo.RecordPartitioner(kgo.ManualPartitioner())}
	// A minute, and not the second that 20 attempts take: on a busy machine a coordinator comes back later.
	opts = append(opts, kgo.RequestRetries(1200))
	if job.TimeoutMs != 0 {
		opts = append(opts, kgo.TransactionTimeout(time.Duration(job.TimeoutMs)*time.Millisecond))
	}
	if job.Group == "" {
		alone := client(job, opts...)
		return &transactor{Client: alone, end: alone.EndTransaction, begin: alone.BeginTransaction}
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
	return &transactor{Client: session.Client(), end: end, begin: session.Begin}
}

// transact does the steps of transactions.
func transact(job *Job, stop <-chan struct{}) {
	producer := newTransactor(job)
	defer func() { producer.CloseAllowingRebalance() }()
	for _, step := range job.Steps {
		event := map[string]any{"event": "result", "do": step.Do}
		if err := producer.step(job, &step, stop); err != nil {
			event["error"] = name(err)
		}
		tell(event)
	}
}

func (producer *transactor) step(job *Job, step *Step, stop <-chan struct{}) error {
	ctx, cancel := context.WithTimeout(context.Background(), 60*time.Second)
	defer cancel()
	switch step.Do {
	case "begin":
		producer.sent = nil
		return producer.again(ctx, job, producer.begin())
	case "commit":
		return producer.commit(ctx, job)
	case "abort":
		return producer.end(ctx, kgo.TryAbort)
	case "send":
		records := []*kgo.Record{}
		for _, it := range step.Records {
			records = append(records, &kgo.Record{Topic: job.Topic, Partition: *it.Partition, Key: bytes(it.Key), Value: bytes(it.Value)})
		}
		if job.Group == "" {
			producer.sent = append(producer.sent, records...)
		}
		return producer.again(ctx, job, producer.ProduceSync(ctx, records...).FirstErr())
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

// commit does what the documentation of EndTransaction asks of an application. The request is not sent again in every case: when
// FindCoordinator is sent to a broker that is gone twice in a row, the client returns the error of the connection, and nobody has
// confirmed the commit. The transaction is then abandoned. When the coordinator has ended it, the log says whether it was committed;
// what was aborted is done again.
func (producer *transactor) commit(ctx context.Context, job *Job) error {
	for {
		err := producer.end(ctx, kgo.TryCommit)
		if len(producer.sent) == 0 || !unconfirmed(ctx, err) {
			return err
		}
		tell(map[string]any{"event": "warning", "error": err.Error()})
		if err := producer.abandon(ctx, job); err != nil {
			return err
		}
		if done, err := committed(ctx, job, producer.sent[0]); done || err != nil {
			return err
		}
		if err := producer.again(ctx, job, err); err != nil {
			return err
		}
	}
}

// again does the transaction up to here once more, in a new one, while no broker answers it. Returns the last error.
func (producer *transactor) again(ctx context.Context, job *Job, err error) error {
	for job.Group == "" && unconfirmed(ctx, err) {
		tell(map[string]any{"event": "warning", "error": err.Error()})
		if err := producer.abandon(ctx, job); err != nil {
			return err
		}
		for i, it := range producer.sent {
			producer.sent[i] = &kgo.Record{Topic: it.Topic, Partition: it.Partition, Key: it.Key, Value: it.Value}
		}
		if err = producer.begin(); err == nil {
			err = producer.ProduceSync(ctx, producer.sent...).FirstErr()
		}
	}
	return err
}

// unconfirmed says that a connection failed, or was not to be had: no broker has answered. It is neither an answer nor an error of the
// client's own, such as that there is no transaction.
func unconfirmed(ctx context.Context, err error) bool {
	var network *net.OpError
	if err == nil || ctx.Err() != nil {
		return false
	}
	return errors.As(err, &network) || errors.Is(err, io.EOF) || errors.Is(err, net.ErrClosed) || err.Error() == "unknown broker"
}

// loaded returns when the coordinator has given the producer its id, for which it has ended what was open.
func (producer *transactor) loaded(ctx context.Context) error {
	for {
		_, _, err := producer.ProducerID(ctx)
		var refused *kerr.Error
		final := errors.As(err, &refused) && !refused.Retriable && refused != kerr.ConcurrentTransactions
		if err == nil || final || ctx.Err() != nil {
			return err
		}
		time.Sleep(50 * time.Millisecond)
	}
}

// committed looks whether the transaction of the record, which has ended, was committed: then the record is what is read first from
// its offset on, else the marker of the abort.
func committed(ctx context.Context, job *Job, record *kgo.Record) (bool, error) {
	where := map[string]map[int32]kgo.Offset{record.Topic: {record.Partition: kgo.NewOffset().At(record.Offset)}}
	reader := client(job, kgo.ConsumePartitions(where), kgo.FetchIsolationLevel(kgo.ReadCommitted()), kgo.KeepControlRecords())
	defer reader.Close()
	for ctx.Err() == nil {
		if found := reader.PollFetches(ctx).Records(); len(found) > 0 {
			return found[0].Offset == record.Offset, nil
		}
	}
	return false, ctx.Err()
}
