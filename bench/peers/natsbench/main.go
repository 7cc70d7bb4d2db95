// Puts load on a NATS JetStream cluster: messages of 200 bytes to a file-backed stream, acknowledged.
//
//	natsbench produce URL STREAM REPLICAS COUNT    all of them, 4,000 at a time; prints the seconds
//	natsbench latency URL STREAM REPLICAS COUNT    100 a second to a consumer; prints each one's ms
//	natsbench steady URL STREAM REPLICAS           100 a second, again until acknowledged: prints of each
//	                                               when it was sent and acknowledged, as Unix time
//	natsbench leader URL STREAM                    prints the name of the server that leads it
package main

import (
	"context"
	"encoding/binary"
	"fmt"
	"log"
	"os"
	"strconv"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
)

const (
	messageBytes = 200
	pending      = 4000
	every        = 10 * time.Millisecond
	patience     = 2 * time.Minute
)

func main() {
	log.SetFlags(0)
	url, stream := os.Args[2], os.Args[3]
	connection, err := nats.Connect(
		url, nats.MaxReconnects(-1), nats.RetryOnFailedConnect(true), nats.ReconnectWait(50*time.Millisecond),
	)
	check(err)
	js, err := jetstream.New(connection, jetstream.WithPublishAsyncMaxPending(pending))
	check(err)
	if os.Args[1] == "leader" {
		leader(js, stream)
		return
	}
	makeStream(js, stream, number(4))
	switch os.Args[1] {
	case "produce":
		produce(js, stream, number(5))
	case "latency":
		latency(js, stream, number(5))
	case "steady":
		steady(js, stream)
	}
}

func check(err error) {
	if err != nil {
		log.Fatal(err)
	}
}

func number(place int) int {
	value, err := strconv.Atoi(os.Args[place])
	check(err)
	return value
}

// makeStream creates the stream; the cluster may still be electing.
func makeStream(js jetstream.JetStream, name string, replicas int) {
	config := jetstream.StreamConfig{
		Name: name, Subjects: []string{name}, Storage: jetstream.FileStorage, Replicas: replicas,
	}
	var err error
	for begun := time.Now(); time.Since(begun) < patience; time.Sleep(100 * time.Millisecond) {
		ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
		_, err = js.CreateOrUpdateStream(ctx, config)
		cancel()
		if err == nil {
			return
		}
	}
	check(err)
}

func leader(js jetstream.JetStream, name string) {
	for begun := time.Now(); time.Since(begun) < patience; time.Sleep(50 * time.Millisecond) {
		ctx, cancel := context.WithTimeout(context.Background(), 5*time.Second)
		stream, err := js.Stream(ctx, name)
		cancel()
		if err == nil {
			info := stream.CachedInfo().Cluster
			current := 0
			for _, each := range info.Replicas {
				if each.Current && !each.Offline {
					current++
				}
			}
			if info.Leader != "" && current == 2 {
				fmt.Println(info.Leader)
				return
			}
		}
	}
	log.Fatal("the stream isn't in sync")
}

func produce(js jetstream.JetStream, subject string, count int) {
	payload := make([]byte, messageBytes)
	begun := time.Now()
	futures := make([]jetstream.PubAckFuture, 0, count)
	for i := 0; i < count; i++ {
		future, err := js.PublishAsync(subject, payload, jetstream.WithStallWait(patience))
		check(err)
		futures = append(futures, future)
	}
	for _, future := range futures {
		select {
		case <-future.Ok():
		case err := <-future.Err():
			log.Fatal(err)
		case <-time.After(patience):
			log.Fatal("nothing is acknowledged")
		}
	}
	fmt.Println(time.Since(begun).Seconds())
}

func latency(js jetstream.JetStream, subject string, count int) {
	ctx := context.Background()
	consumer, err := js.OrderedConsumer(ctx, subject, jetstream.OrderedConsumerConfig{})
	check(err)
	took := make(chan float64, count)
	reading, err := consumer.Consume(func(message jetstream.Msg) {
		sent := time.Unix(0, int64(binary.BigEndian.Uint64(message.Data())))
		took <- float64(time.Since(sent)) / float64(time.Millisecond)
	})
	check(err)
	defer reading.Stop()
	begun := time.Now()
	for i := 0; i < count; i++ {
		time.Sleep(time.Until(begun.Add(time.Duration(i) * every)))
		payload := make([]byte, messageBytes)
		binary.BigEndian.PutUint64(payload, uint64(time.Now().UnixNano()))
		_, err := js.PublishAsync(subject, payload)
		check(err)
	}
	for i := 0; i < count; i++ {
		select {
		case ms := <-took:
			fmt.Println(ms)
		case <-time.After(patience):
			log.Fatal("a message doesn't arrive")
		}
	}
}

func steady(js jetstream.JetStream, subject string) {
	for {
		sent := time.Now()
		go func() {
			for {
				ctx, cancel := context.WithTimeout(context.Background(), time.Second)
				_, err := js.Publish(ctx, subject, make([]byte, messageBytes))
				cancel()
				if err == nil {
					acknowledged := time.Now()
					fmt.Printf("%f %f\n", float64(sent.UnixNano())/1e9, float64(acknowledged.UnixNano())/1e9)
					return
				}
			}
		}()
		time.Sleep(every)
	}
}
