//go:build years

package main

import (
	"context"
	"errors"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"
)

// In the place of newest.go, for releases that have nothing of it.

func serverSide() kgo.GroupOpt {
	panic("this release has no consumer protocol")
}

func describeConsumerGroup(context.Context, *kadm.Client, string) (any, error) {
	return nil, errors.New("this release has no consumer protocol")
}

func guessVersion(context.Context, *kadm.Client) (any, error) {
	return nil, errors.New("this release does not know Kafka 4.3")
}

// abandon ends a transaction whose commit nobody has confirmed: a new client takes over. The documentation of these releases forbids
// to abort it.
func (producer *transactor) abandon(ctx context.Context, job *Job) error {
	producer.CloseAllowingRebalance()
	sent := producer.sent
	*producer = *newTransactor(job)
	producer.sent = sent
	return producer.loaded(ctx)
}
