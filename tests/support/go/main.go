// Clients of Kafka's in Go, driven by a test: a line of JSON in, lines of JSON out. Bytes are base64.
//
//	driver franz-go | sarama
//
// It speaks as KafkaDriver.java does, which has the requests; "admin" does all that an administrator's client
// has, and tells what it found; "console" does what Redpanda Console's pages do.
package main

import (
	"bufio"
	"encoding/json"
	"fmt"
	"os"
	"time"
)

// A Record as tests write it; null and empty bytes are different things.
type Record struct {
	Topic     string   `json:"topic"`
	Partition *int32   `json:"partition"`
	Offset    int64    `json:"offset"`
	Timestamp *int64   `json:"timestamp"`
	Key       []byte   `json:"key"`
	Value     []byte   `json:"value"`
	Headers   []Header `json:"headers"`
}

// A Header is a pair: its name, and its value or null.
type Header struct {
	Key   string
	Value []byte
}

func (h Header) MarshalJSON() ([]byte, error) {
	return json.Marshal([]any{h.Key, h.Value})
}

func (h *Header) UnmarshalJSON(data []byte) error {
	return json.Unmarshal(data, &[]any{&h.Key, &h.Value})
}

// Asked is one request of the test's.
type Asked struct {
	Do       string            `json:"do"`
	Settings map[string]string `json:"settings"`
	Topic    string            `json:"topic"`
	Topics   []string          `json:"topics"`
	Count    int               `json:"count"`
	Records  []Record          `json:"records"`
	Consumer string            `json:"consumer"`
	Seconds  float64           `json:"seconds"`
}

// A Library is what tests want of a client.
type Library interface {
	Produce(asked Asked) ([][2]int64, error)
	Read(asked Asked, show func(Record)) error
	Join(asked Asked) (Member, error)
	Admin(asked Asked) (map[string]any, error)
}

// A Member of a group.
type Member interface {
	Poll(wait time.Duration) (records []Record, assigned []string, err error)
	Commit() error
	Close() error
}

var output = bufio.NewWriter(os.Stdout)

func say(answer any) {
	text, err := json.Marshal(answer)
	if err != nil {
		panic(err)
	}
	output.Write(append(text, '\n'))
}

func main() {
	libraries := map[string]Library{"franz-go": franzGo{}, "sarama": saramaGo{}}
	library := libraries[os.Args[1]]
	members := map[string]Member{}
	lines := bufio.NewReader(os.Stdin)
	for {
		line, err := lines.ReadBytes('\n')
		if err != nil {
			return
		}
		answer, err := carryOut(library, members, line)
		if err != nil {
			answer = map[string]any{"error": err.Error()}
		}
		say(answer)
		output.Flush()
	}
}

func carryOut(library Library, members map[string]Member, line []byte) (map[string]any, error) {
	var asked Asked
	if err := json.Unmarshal(line, &asked); err != nil {
		return nil, err
	}
	answer := map[string]any{}
	switch asked.Do {
	case "produce":
		placed, err := library.Produce(asked)
		answer["placed"] = placed
		return answer, err
	case "read":
		return answer, library.Read(asked, func(each Record) { say(map[string]any{"record": each}) })
	case "join":
		member, err := library.Join(asked)
		members[asked.Consumer] = member
		return answer, err
	case "poll":
		records, assigned, err := members[asked.Consumer].Poll(time.Duration(asked.Seconds * float64(time.Second)))
		for _, each := range records {
			say(map[string]any{"record": each})
		}
		answer["assigned"] = assigned
		return answer, err
	case "commit":
		return answer, members[asked.Consumer].Commit()
	case "close":
		return answer, members[asked.Consumer].Close()
	case "admin":
		return library.Admin(asked)
	case "console":
		return consolePages(asked)
	}
	return nil, fmt.Errorf("what is %s", line)
}
