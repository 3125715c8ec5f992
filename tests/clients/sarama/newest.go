//go:build !years

package main

import (
	"errors"
	"strconv"

	"github.com/IBM/sarama"
)

// What only newer releases have: those of tests/clients/years are built without this file.

func balance(settings *sarama.Config, cooperative bool) {
	strategy := sarama.NewBalanceStrategyRange()
	if cooperative {
		strategy = sarama.NewBalanceStrategyCooperativeSticky()
	}
	settings.Consumer.Group.Rebalance.GroupStrategies = []sarama.BalanceStrategy{strategy}
}

func listOffset(admin sarama.ClusterAdmin, step *Step) (any, error) {
	at := map[string]int64{"earliest": sarama.OffsetOldest, "latest": sarama.OffsetNewest}
	when, special := at[step.At]
	if !special {
		when = must(strconv.ParseInt(step.At, 10, 64))
	}
	found, err := admin.ListOffsets(map[string]map[int32]int64{step.Topic: {step.Partition: when}}, nil)
	if err != nil {
		return nil, err
	}
	one := found[step.Topic][step.Partition]
	if !errors.Is(one.Err, sarama.ErrNoError) {
		return nil, one.Err
	}
	return one.Offset, nil
}
