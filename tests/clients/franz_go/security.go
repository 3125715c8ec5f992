package main

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/sasl/oauth"
	"github.com/twmb/franz-go/pkg/sasl/plain"
	"github.com/twmb/franz-go/pkg/sasl/scram"
)

// Security says how to log in.
type Security struct {
	CA          string  `json:"ca"`
	Certificate string  `json:"certificate"`
	Key         string  `json:"key"`
	Mechanism   string  `json:"mechanism"`
	Username    string  `json:"username"`
	Password    string  `json:"password"`
	TokenS      float64 `json:"token_s"`
}

func must[T any](value T, err error) T {
	if err != nil {
		panic(err)
	}
	return value
}

func (s *Security) tls() *tls.Config {
	trusted := x509.NewCertPool()
	trusted.AppendCertsFromPEM(must(os.ReadFile(s.CA)))
	found := &tls.Config{RootCAs: trusted}
	if s.Certificate != "" {
		found.Certificates = []tls.Certificate{must(tls.LoadX509KeyPair(s.Certificate, s.Key))}
	}
	return found
}

// token is one that nobody has signed.
func (s *Security) token() string {
	part := func(value any) string { return base64.RawURLEncoding.EncodeToString(must(json.Marshal(value))) }
	now := float64(time.Now().UnixMilli()) / 1000
	claims := map[string]any{"sub": s.Username, "iat": now, "exp": now + s.TokenS}
	return fmt.Sprintf("%s.%s.", part(map[string]string{"alg": "none"}), part(claims))
}

func secured(job *Job) []kgo.Opt {
	if job.Security == nil {
		return nil
	}
	given := job.Security
	found := []kgo.Opt{kgo.DialTLSConfig(given.tls())}
	switch given.Mechanism {
	case "PLAIN":
		found = append(found, kgo.SASL(plain.Auth{User: given.Username, Pass: given.Password}.AsMechanism()))
	case "SCRAM-SHA-256":
		found = append(found, kgo.SASL(scram.Auth{User: given.Username, Pass: given.Password}.AsSha256Mechanism()))
	case "SCRAM-SHA-512":
		found = append(found, kgo.SASL(scram.Auth{User: given.Username, Pass: given.Password}.AsSha512Mechanism()))
	case "OAUTHBEARER":
		found = append(found, kgo.SASL(oauth.Oauth(func(context.Context) (oauth.Auth, error) {
			return oauth.Auth{Token: given.token()}, nil
		})))
	}
	return found
}

// session sends a record after the other until it is told to stop.
func session(job *Job, stop <-chan struct{}) {
	ctx, cancel := context.WithCancel(context.Background())
	go func() { <-stop; cancel() }()
	producer := client(job, kgo.RecordDeliveryTimeout(20*time.Second), kgo.RequestRetries(10))
	defer producer.Close()
	for i := 0; ctx.Err() == nil; i++ {
		err := producer.ProduceSync(ctx, &kgo.Record{Topic: job.Topic, Value: []byte("v")}).FirstErr()
		if err == nil {
			tell(map[string]any{"event": "ack", "i": i})
		} else if !errors.Is(err, context.Canceled) {
			tell(map[string]any{"event": "fail", "i": i, "error": name(err)})
		}
		time.Sleep(time.Duration(job.PauseMs) * time.Millisecond)
	}
}
