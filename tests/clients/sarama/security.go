//go:build !years

package main

import (
	"crypto/sha256"
	"crypto/sha512"
	"crypto/tls"
	"crypto/x509"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"os"
	"time"

	"github.com/IBM/sarama"
	"github.com/xdg-go/scram"
)

// scramClient is what Sarama leaves to its users.
type scramClient struct {
	hash         scram.HashGeneratorFcn
	conversation *scram.ClientConversation
}

func (c *scramClient) Begin(user, password, authorization string) error {
	client, err := c.hash.NewClient(user, password, authorization)
	if err == nil {
		c.conversation = client.NewConversation()
	}
	return err
}

func (c *scramClient) Step(challenge string) (string, error) { return c.conversation.Step(challenge) }

func (c *scramClient) Done() bool { return c.conversation.Done() }

// Token is one that nobody has signed.
func (s *Security) Token() (*sarama.AccessToken, error) {
	part := func(value any) string { return base64.RawURLEncoding.EncodeToString(must(json.Marshal(value))) }
	now := float64(time.Now().UnixMilli()) / 1000
	claims := map[string]any{"sub": s.Username, "iat": now, "exp": now + s.TokenS}
	return &sarama.AccessToken{Token: fmt.Sprintf("%s.%s.", part(map[string]string{"alg": "none"}), part(claims))}, nil
}

func secure(settings *sarama.Config, given *Security) {
	if given == nil {
		return
	}
	trusted := x509.NewCertPool()
	trusted.AppendCertsFromPEM(must(os.ReadFile(given.CA)))
	settings.Net.TLS.Enable = true
	settings.Net.TLS.Config = &tls.Config{RootCAs: trusted}
	if given.Certificate != "" {
		settings.Net.TLS.Config.Certificates = []tls.Certificate{must(tls.LoadX509KeyPair(given.Certificate, given.Key))}
	}
	if given.Mechanism == "" {
		return
	}
	settings.Net.SASL.Enable = true
	settings.Net.SASL.Mechanism = sarama.SASLMechanism(given.Mechanism)
	settings.Net.SASL.User, settings.Net.SASL.Password = given.Username, given.Password
	switch given.Mechanism {
	case "SCRAM-SHA-256":
		settings.Net.SASL.SCRAMClientGeneratorFunc = func() sarama.SCRAMClient { return &scramClient{hash: sha256.New} }
	case "SCRAM-SHA-512":
		settings.Net.SASL.SCRAMClientGeneratorFunc = func() sarama.SCRAMClient { return &scramClient{hash: sha512.New} }
	case "OAUTHBEARER":
		settings.Net.SASL.TokenProvider = given
	}
}

// session sends a record after the other until it is told to stop.
func session(job *Job, stop <-chan struct{}) {
	settings := config(job)
	settings.Producer.Return.Successes = true
	settings.Producer.Retry.Backoff = 100 * time.Millisecond
	settings.Metadata.Retry.Max = 3
	var producer sarama.SyncProducer
	for i := 0; ; i++ {
		select {
		case <-stop:
			if producer != nil {
				producer.Close()
			}
			return
		case <-time.After(time.Duration(job.PauseMs) * time.Millisecond):
		}
		var err error
		if producer == nil {
			producer, err = sarama.NewSyncProducer(servers(job), settings)
		}
		if err == nil {
			_, _, err = producer.SendMessage(&sarama.ProducerMessage{Topic: job.Topic, Value: sarama.StringEncoder("v")})
		}
		if err != nil {
			producer = nil
			tell(map[string]any{"event": "fail", "i": i, "error": name(err)})
			continue
		}
		tell(map[string]any{"event": "ack", "i": i})
	}
}
