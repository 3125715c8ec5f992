//go:build years

package main

import (
	"errors"

	"github.com/IBM/sarama"
)

// In the place of newest.go, for releases that have nothing of it.

func balance(settings *sarama.Config, cooperative bool) {
	if cooperative {
		panic("this release has no incremental rebalances")
	}
	settings.Consumer.Group.Rebalance.GroupStrategies = []sarama.BalanceStrategy{sarama.BalanceStrategyRange}
}

func listOffset(sarama.ClusterAdmin, *Step) (any, error) {
	return nil, errors.New("this release has no call for it")
}

// Earlier releases are tried at open listeners only.
func secure(*sarama.Config, *Security) {}

func session(*Job, <-chan struct{}) { panic("an earlier release") }
