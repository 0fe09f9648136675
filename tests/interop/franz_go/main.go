// franz-go as its users write it: produces a record and reads the topic; prints the values, or [] where it is not let in.
package main

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/sasl"
	"github.com/twmb/franz-go/pkg/sasl/plain"
	"github.com/twmb/franz-go/pkg/sasl/scram"
)

type given struct {
	Brokers                                             []string
	Topic, CA, Own, Mechanism, Username, Password, Value string
}

func mechanism(g given) sasl.Mechanism {
	switch g.Mechanism {
	case "plain":
		return plain.Auth{User: g.Username, Pass: g.Password}.AsMechanism()
	case "scram-sha-256":
		return scram.Auth{User: g.Username, Pass: g.Password}.AsSha256Mechanism()
	case "scram-sha-512":
		return scram.Auth{User: g.Username, Pass: g.Password}.AsSha512Mechanism()
	}
	return nil
}

func run(g given) ([]string, error) {
	ctx, cancel := context.WithTimeout(context.Background(), 20*time.Second)
	defer cancel()
	options := []kgo.Opt{
		kgo.SeedBrokers(g.Brokers...),
		kgo.RecordPartitioner(kgo.ManualPartitioner()),
		kgo.RecordRetries(2),
		kgo.RecordDeliveryTimeout(5 * time.Second),
		kgo.ConsumePartitions(map[string]map[int32]kgo.Offset{g.Topic: {0: kgo.NewOffset().AtStart()}}),
	}
	if g.CA != "" {
		pool := x509.NewCertPool()
		pool.AppendCertsFromPEM([]byte(g.CA))
		config := &tls.Config{RootCAs: pool}
		if g.Own != "" {
			own, err := tls.X509KeyPair([]byte(g.Own), []byte(g.Own))
			if err != nil {
				return nil, err
			}
			config.Certificates = []tls.Certificate{own}
		}
		options = append(options, kgo.DialTLSConfig(config))
	}
	if m := mechanism(g); m != nil {
		options = append(options, kgo.SASL(m))
	}
	client, err := kgo.NewClient(options...)
	if err != nil {
		return nil, err
	}
	defer client.Close()
	if err := client.Ping(ctx); err != nil {
		if errors.Is(err, kerr.SaslAuthenticationFailed) {
			return []string{}, nil
		}
		return nil, err
	}
	produced, err := client.ProduceSync(ctx, &kgo.Record{Topic: g.Topic, Value: []byte(g.Value)}).First()
	if err != nil {
		return nil, err
	}
	values, last := []string{}, int64(-1)
	for last < produced.Offset {
		fetches := client.PollFetches(ctx)
		if err := fetches.Err(); err != nil {
			return nil, err
		}
		fetches.EachRecord(func(record *kgo.Record) {
			values, last = append(values, string(record.Value)), record.Offset
		})
	}
	return values, nil
}

func main() {
	var g given
	err := json.NewDecoder(os.Stdin).Decode(&g)
	if err == nil {
		var values []string
		if values, err = run(g); err == nil {
			err = json.NewEncoder(os.Stdout).Encode(values)
		}
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}
