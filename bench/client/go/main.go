// The work of bench/client.py with Apache's Go client: NAME_SERVER TOPIC WAY UNDER_WAY. The ways and the words on
// standard input are those of bench/client_loads.py.
package main

import (
	"bufio"
	"bytes"
	"context"
	"fmt"
	"os"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	rocketmq "github.com/apache/rocketmq-client-go/v2"
	"github.com/apache/rocketmq-client-go/v2/consumer"
	"github.com/apache/rocketmq-client-go/v2/primitive"
	"github.com/apache/rocketmq-client-go/v2/producer"
)

var (
	began             = time.Now()
	body              = bytes.Repeat([]byte("x"), 1024)
	failed            atomic.Int64
	first             atomic.Int64
	names, topic, way string
	underWay          int
)

func main() {
	names, topic, way = os.Args[1], os.Args[2], os.Args[3]
	underWay = number(os.Args[4])
	words := bufio.NewScanner(os.Stdin)
	if way == "consume" {
		for round := 0; words.Scan(); round++ {
			consumeAll(fmt.Sprintf("bench-go-%d-%d", os.Getpid(), round), number(argument(words)))
		}
		return
	}
	p, err := rocketmq.NewProducer(
		producer.WithNsResolver(primitive.NewPassthroughResolver([]string{names})),
		producer.WithGroupName("bench-go"),
	)
	must(err)
	must(p.Start())
	for words.Scan() {
		begin := time.Now()
		var goesOn func() bool
		if strings.HasPrefix(words.Text(), "count ") {
			var left atomic.Int64
			left.Store(int64(number(argument(words))))
			goesOn = func() bool { return left.Add(-1) >= 0 }
		} else {
			seconds, err := strconv.ParseFloat(argument(words), 64)
			must(err)
			until := begin.Add(time.Duration(seconds * float64(time.Second)))
			goesOn = func() bool { return time.Now().Before(until) }
		}
		say(send(p, goesOn), begin)
	}
	_ = p.Shutdown()
}

func send(p rocketmq.Producer, goesOn func() bool) int64 {
	switch way {
	case "async":
		return sendAsync(p, goesOn)
	case "batch":
		return sendBatches(p, goesOn)
	default:
		return sendWaiting(p, goesOn)
	}
}

func sendWaiting(p rocketmq.Producer, goesOn func() bool) int64 {
	var sent atomic.Int64
	var running sync.WaitGroup
	for i := 0; i < underWay; i++ {
		running.Add(1)
		go func() {
			defer running.Done()
			for goesOn() {
				_, err := p.SendSync(context.Background(), primitive.NewMessage(topic, body))
				note(err, &sent, 1)
			}
		}()
	}
	running.Wait()
	return sent.Load()
}

func sendAsync(p rocketmq.Producer, goesOn func() bool) int64 {
	var sent atomic.Int64
	free := make(chan struct{}, underWay)
	answered := func(_ context.Context, _ *primitive.SendResult, err error) {
		note(err, &sent, 1)
		<-free
	}
	for goesOn() {
		free <- struct{}{}
		if err := p.SendAsync(context.Background(), answered, primitive.NewMessage(topic, body)); err != nil {
			note(err, &sent, 1)
			<-free
		}
	}
	for i := 0; i < underWay; i++ {
		free <- struct{}{}
	}
	return sent.Load()
}

func sendBatches(p rocketmq.Producer, goesOn func() bool) int64 {
	var sent atomic.Int64
	for goesOn() {
		messages := make([]*primitive.Message, underWay)
		for i := range messages {
			messages[i] = primitive.NewMessage(topic, body)
		}
		_, err := p.SendSync(context.Background(), messages...)
		note(err, &sent, int64(underWay))
	}
	return sent.Load()
}

func consumeAll(group string, count int) {
	begin := time.Now()
	var left, size atomic.Int64
	left.Store(int64(count))
	done := make(chan struct{})
	c, err := rocketmq.NewPushConsumer(
		consumer.WithNsResolver(primitive.NewPassthroughResolver([]string{names})),
		consumer.WithGroupName(group),
		consumer.WithInstance(group),
		consumer.WithConsumeFromWhere(consumer.ConsumeFromFirstOffset),
		consumer.WithConsumeMessageBatchMaxSize(underWay),
	)
	must(err)
	accept := func(_ context.Context, messages ...*primitive.MessageExt) (consumer.ConsumeResult, error) {
		for _, message := range messages {
			size.Add(int64(len(message.Body)))
			if left.Add(-1) == 0 {
				close(done)
			}
		}
		return consumer.ConsumeSuccess, nil
	}
	must(c.Subscribe(topic, consumer.MessageSelector{Type: consumer.TAG, Expression: "*"}, accept))
	must(c.Start())
	<-done
	if size.Load() < int64(count*len(body)) {
		panic(size.Load())
	}
	say(int64(count), begin)
	_ = c.Shutdown()
}

func note(err error, sent *atomic.Int64, messages int64) {
	if err != nil {
		if failed.Add(1) == 1 {
			fmt.Fprintln(os.Stderr, err)
		}
		return
	}
	if first.Load() == 0 {
		first.CompareAndSwap(0, int64(time.Since(began)))
	}
	sent.Add(messages)
}

func say(messages int64, begin time.Time) {
	fmt.Println(messages, time.Since(begin).Seconds(), failed.Swap(0), float64(first.Load())/1e6)
}

func argument(words *bufio.Scanner) string {
	return strings.Fields(words.Text())[1]
}

func number(word string) int {
	found, err := strconv.Atoi(word)
	must(err)
	return found
}

func must(err error) {
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}
