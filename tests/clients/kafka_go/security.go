package main

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"os"
	"time"

	"github.com/segmentio/kafka-go"
	"github.com/segmentio/kafka-go/sasl"
	"github.com/segmentio/kafka-go/sasl/plain"
	"github.com/segmentio/kafka-go/sasl/scram"
)

// Security says how to log in.
type Security struct {
	CA          string `json:"ca"`
	Certificate string `json:"certificate"`
	Key         string `json:"key"`
	Mechanism   string `json:"mechanism"`
	Username    string `json:"username"`
	Password    string `json:"password"`
}

func (s *Security) tls() *tls.Config {
	if s == nil {
		return nil
	}
	trusted := x509.NewCertPool()
	trusted.AppendCertsFromPEM(must(os.ReadFile(s.CA)))
	found := &tls.Config{RootCAs: trusted}
	if s.Certificate != "" {
		found.Certificates = []tls.Certificate{must(tls.LoadX509KeyPair(s.Certificate, s.Key))}
	}
	return found
}

func (s *Security) sasl() sasl.Mechanism {
	if s == nil {
		return nil
	}
	switch s.Mechanism {
	case "PLAIN":
		return plain.Mechanism{Username: s.Username, Password: s.Password}
	case "SCRAM-SHA-256":
		return must(scram.Mechanism(scram.SHA256, s.Username, s.Password))
	case "SCRAM-SHA-512":
		return must(scram.Mechanism(scram.SHA512, s.Username, s.Password))
	}
	return nil
}

func (s *Security) transport() kafka.RoundTripper {
	if s == nil {
		return nil
	}
	return &kafka.Transport{TLS: s.tls(), SASL: s.sasl()}
}

func (s *Security) dialer() *kafka.Dialer {
	return &kafka.Dialer{Timeout: 10 * time.Second, DualStack: true, TLS: s.tls(), SASLMechanism: s.sasl()}
}

// session sends a record after the other until it is told to stop.
func session(job *Job, stop <-chan struct{}) {
	ctx, cancel := context.WithCancel(context.Background())
	go func() { <-stop; cancel() }()
	writer := &kafka.Writer{
		Addr: kafka.TCP(servers(job)...), Topic: job.Topic, BatchTimeout: time.Millisecond, RequiredAcks: kafka.RequireAll,
		Transport: job.Security.transport(),
	}
	for i := 0; ctx.Err() == nil; i++ {
		err := writer.WriteMessages(ctx, kafka.Message{Value: []byte("v")})
		if err == nil {
			tell(map[string]any{"event": "ack", "i": i})
		} else if !errors.Is(err, context.Canceled) {
			var each kafka.WriteErrors
			if errors.As(err, &each) {
				err = each[0]
			}
			tell(map[string]any{"event": "fail", "i": i, "error": name(err)})
		}
		time.Sleep(time.Duration(job.PauseMs) * time.Millisecond)
	}
	writer.Close()
}
