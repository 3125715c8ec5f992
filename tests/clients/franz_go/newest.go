//go:build !years

package main

import (
	"context"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kversion"
)

// What only newer releases have: those of tests/clients/years are built without this file.

func serverSide() kgo.GroupOpt {
	return kgo.ServerSideBalancer()
}

func describeConsumerGroup(ctx context.Context, cl *kadm.Client, group string) (any, error) {
	found, err := cl.DescribeConsumerGroups(ctx, group)
	if err != nil {
		return nil, err
	}
	one := found[group]
	return map[string]any{"state": one.State, "members": len(one.Members)}, one.Err
}

// guessVersion is which release of Kafka franz-go takes the broker for, by the versions of its requests, and which requests of 4.3
// it misses; and which release it is taken for when those are left out of account.
func guessVersion(ctx context.Context, cl *kadm.Client) (any, error) {
	brokers, err := cl.ApiVersions(ctx)
	if err != nil {
		return nil, err
	}
	for _, broker := range brokers {
		if broker.Err != nil {
			return nil, broker.Err
		}
		found := kversion.FromApiVersionsResponse(broker.Raw())
		missing := []int16{}
		kversion.V4_3_0().EachMaxKeyVersion(func(key, _ int16) {
			if !found.HasKey(key) {
				missing = append(missing, key)
			}
		})
		without := found.VersionGuess(kversion.SkipKeys(missing...))
		return map[string]any{"guess": found.VersionGuess(), "missing": missing, "without": without}, nil
	}
	return nil, nil
}

// abandon ends a transaction whose commit nobody has confirmed: with TryAbort, as the documentation says, which takes the producer's
// id anew.
func (producer *transactor) abandon(ctx context.Context, _ *Job) error {
	for {
		err := producer.end(ctx, kgo.TryAbort)
		if err == nil {
			return producer.loaded(ctx)
		}
		if !unconfirmed(ctx, err) {
			return err
		}
	}
}
