//go:build !years

package main

import (
	"context"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"
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
