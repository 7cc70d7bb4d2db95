// Checks that histories of clients could be those of one log: porcupine looks for an order of the
// operations, each somewhere between its call and its return, that a log would have answered so.
//
// Reads one history a line from standard input: {"name": "...", "operations": [{"kind": "append",
// "client": 0, "call": 10, "return": 20, "offset": 3, "values": [7]}, ...]}. Prints a line for each
// that isn't linearizable, or undecided, then how many there were; exits with 1 if any wasn't.
package main

import (
	"bufio"
	"encoding/json"
	"fmt"
	"os"
	"runtime/debug"
	"time"

	"github.com/anishathalye/porcupine"
)

// The search may take exponential time, and memory with it: what isn't decided by then is said to be.
const patience = 5 * time.Second

type operation struct {
	Kind   string `json:"kind"`
	Client int    `json:"client"`
	Call   int64  `json:"call"`
	Return int64  `json:"return"`
	Offset int    `json:"offset"`
	Values []int  `json:"values"`
}

type history struct {
	Name       string      `json:"name"`
	Operations []operation `json:"operations"`
}

// A log is its last message and what came before it, so that a longer one shares the shorter one.
type entry struct {
	before *entry
	length int
	value  int
	hash   uint64
}

func (log *entry) append(value int) *entry {
	hash := (log.hash ^ uint64(value)) * 1099511628211
	return &entry{log, log.length + 1, value, hash}
}

func (log *entry) has(offset int, values []int) bool {
	for log.length > offset+len(values) {
		log = log.before
	}
	for place := len(values) - 1; place >= 0; place-- {
		if log.length != offset+place+1 || log.value != values[place] {
			return false
		}
		log = log.before
	}
	return true
}

func equal(one, other *entry) bool {
	for one != other {
		if one.length != other.length || one.hash != other.hash || one.value != other.value {
			return false
		}
		one, other = one.before, other.before
	}
	return true
}

var aLog = porcupine.Model{
	Init: func() interface{} { return &entry{} },
	Step: func(state, input, _ interface{}) (bool, interface{}) {
		log, done := state.(*entry), input.(operation)
		switch done.Kind {
		case "append":
			return log.length == done.Offset, log.append(done.Values[0])
		case "poll":
			return log.length >= done.Offset+len(done.Values) && log.has(done.Offset, done.Values), log
		default:
			return log.length == done.Offset, log
		}
	},
	Equal: func(one, other interface{}) bool { return equal(one.(*entry), other.(*entry)) },
	Hash:  func(state interface{}) uint64 { return state.(*entry).hash },
}

func main() {
	lines := bufio.NewScanner(os.Stdin)
	lines.Buffer(nil, 1<<30)
	checked, broken, undecided := 0, 0, 0
	for lines.Scan() {
		var read history
		if err := json.Unmarshal(lines.Bytes(), &read); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(2)
		}
		operations := make([]porcupine.Operation, 0, len(read.Operations))
		for _, each := range read.Operations {
			operations = append(operations, porcupine.Operation{
				ClientId: each.Client, Input: each, Call: each.Call, Return: each.Return,
			})
		}
		checked++
		switch porcupine.CheckOperationsTimeout(aLog, operations, patience) {
		case porcupine.Illegal:
			broken++
			fmt.Println("not linearizable:", read.Name)
		case porcupine.Unknown:
			undecided++
			fmt.Println("undecided:", read.Name)
			debug.FreeOSMemory()
		}
	}
	if err := lines.Err(); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(2)
	}
	fmt.Printf("%d histories, %d not linearizable", checked, broken)
	if undecided > 0 {
		fmt.Printf(", %d undecided", undecided)
	}
	fmt.Println()
	if broken > 0 {
		os.Exit(1)
	}
}
