// Apache's Go client on a command line, with the words and the output lines of the Java driver:
// one JSON object per line on standard output, notes on standard error.
package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/signal"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"

	rocketmq "github.com/apache/rocketmq-client-go/v2"
	"github.com/apache/rocketmq-client-go/v2/consumer"
	"github.com/apache/rocketmq-client-go/v2/primitive"
	"github.com/apache/rocketmq-client-go/v2/producer"
)

var (
	words    []string
	options  = map[string]string{}
	switches = map[string]bool{"oneway": true, "async": true, "orderly": true, "broadcast": true}
	output   sync.Mutex
)

func main() {
	for i := 1; i < len(os.Args); i++ {
		name, isOption := strings.CutPrefix(os.Args[i], "--")
		switch {
		case !isOption:
			words = append(words, os.Args[i])
		case switches[name]:
			options[name] = "true"
		default:
			i++
			options[name] = os.Args[i]
		}
	}
	commands := map[string]func() error{
		"produce": produce, "consume": consume, "poll": poll, "pull": pull, "request": request, "transact": transact,
	}
	if len(words) == 0 || commands[words[0]] == nil {
		fmt.Fprintln(os.Stderr, "produce NS TOPIC COUNT | consume NS TOPIC GROUP EXPECTED TIMEOUT_S | "+
			"poll NS TOPIC GROUP EXPECTED TIMEOUT_S | pull NS TOPIC QUEUE OFFSET MAX | "+
			"request NS TOPIC COUNT | transact NS TOPIC COUNT")
		os.Exit(2)
	}
	if err := commands[words[0]](); err != nil {
		printFailure(err)
		os.Exit(1)
	}
}

func produce() error {
	p, err := rocketmq.NewProducer(producerOptions()...)
	if err != nil {
		return err
	}
	if err := p.Start(); err != nil {
		return err
	}
	defer func() { _ = p.Shutdown() }()
	count, size := number(words[3]), max(1, option("batch", 1))
	failures := 0
	for from := 0; from < count; from += size {
		var batch []*primitive.Message
		for i := from; i < min(count, from+size); i++ {
			batch = append(batch, message(i))
		}
		if err := send(p, batch); err != nil {
			failures++
			printFailure(err)
		}
	}
	if has("oneway") {
		time.Sleep(500 * time.Millisecond)
	}
	if failures > 0 {
		return fmt.Errorf("%d sends failed", failures)
	}
	return nil
}

func send(p rocketmq.Producer, batch []*primitive.Message) error {
	ctx := context.Background()
	switch {
	case has("oneway"):
		return p.SendOneWay(ctx, batch...)
	case has("async"):
		done := make(chan error, 1)
		err := p.SendAsync(ctx, func(_ context.Context, result *primitive.SendResult, err error) {
			if err == nil {
				printResult(result)
			}
			done <- err
		}, batch...)
		if err != nil {
			return err
		}
		return <-done
	default:
		result, err := p.SendSync(ctx, batch...)
		if err != nil {
			return err
		}
		printResult(result)
		return nil
	}
}

// request prints the reply to each message.
func request() error {
	p, err := rocketmq.NewProducer(producerOptions()...)
	if err != nil {
		return err
	}
	if err := p.Start(); err != nil {
		return err
	}
	defer func() { _ = p.Shutdown() }()
	for i := 0; i < number(words[3]); i++ {
		timeout := time.Duration(option("timeout", 10_000)) * time.Millisecond
		reply, err := p.Request(context.Background(), timeout, message(i))
		if err != nil && i == 0 {
			// The client tells brokers of itself a second after its start: a quicker reply finds nobody.
			reply, err = p.Request(context.Background(), timeout, message(i))
		}
		if err != nil {
			return err
		}
		printLine(map[string]any{"body": string(reply.Body), "properties": reply.GetProperties()})
	}
	return nil
}

type listener struct{}

func (listener) ExecuteLocalTransaction(*primitive.Message) primitive.LocalTransactionState {
	return verdict(options["transaction"])
}

func (listener) CheckLocalTransaction(m *primitive.MessageExt) primitive.LocalTransactionState {
	line := describe(m)
	line["checked"] = options["check"]
	printLine(line)
	return verdict(options["check"])
}

func verdict(name string) primitive.LocalTransactionState {
	switch name {
	case "rollback":
		return primitive.RollbackMessageState
	case "unknown":
		return primitive.UnknowState
	default:
		return primitive.CommitMessageState
	}
}

func transact() error {
	p, err := rocketmq.NewTransactionProducer(listener{}, producerOptions()...)
	if err != nil {
		return err
	}
	if err := p.Start(); err != nil {
		return err
	}
	defer func() { _ = p.Shutdown() }()
	for i := 0; i < number(words[3]); i++ {
		result, err := p.SendMessageInTransaction(context.Background(), message(i))
		if err != nil {
			return err
		}
		printResult(result.SendResult)
	}
	time.Sleep(time.Duration(option("linger", 500)) * time.Millisecond)
	return nil
}

func consume() error {
	expected, seconds := number(words[4]), number(words[5])
	arrived := make(chan int, 1024)
	var mutex sync.Mutex
	deliveries := map[string]int{}
	c, err := rocketmq.NewPushConsumer(consumerOptions()...)
	if err != nil {
		return err
	}
	selector := consumer.MessageSelector{Type: consumer.TAG, Expression: text("tag", "*")}
	if has("sql") {
		selector = consumer.MessageSelector{Type: consumer.SQL92, Expression: options["sql"]}
	}
	accept := func(_ context.Context, messages ...*primitive.MessageExt) (consumer.ConsumeResult, error) {
		retry := false
		for _, m := range messages {
			mutex.Lock()
			deliveries[m.MsgId]++
			delivery := deliveries[m.MsgId]
			mutex.Unlock()
			line := describe(m)
			line["delivery"] = delivery
			printLine(line)
			retry = retry || delivery <= option("fail", 0)
		}
		if retry {
			if has("orderly") {
				return consumer.SuspendCurrentQueueAMoment, nil
			}
			return consumer.ConsumeRetryLater, nil
		}
		arrived <- len(messages)
		return consumer.ConsumeSuccess, nil
	}
	if err := c.Subscribe(words[2], selector, accept); err != nil {
		return err
	}
	if err := c.Start(); err != nil {
		return err
	}
	defer func() { _ = c.Shutdown() }()
	fmt.Fprintln(os.Stderr, "started")
	if err := wait(arrived, expected, time.Duration(seconds)*time.Second); err != nil {
		return err
	}
	// The client notes that a message is consumed after the callback has returned, and a shutdown tells the broker
	// only what is noted by then: without a pause the last message may come once more to the group.
	time.Sleep(time.Duration(option("linger", 500)) * time.Millisecond)
	return nil
}

// poll takes messages with a pull consumer, and says of each that it was consumed.
func poll() error {
	expected, seconds := number(words[4]), number(words[5])
	c, err := pullConsumer(words[3])
	if err != nil {
		return err
	}
	defer func() { _ = c.Shutdown() }()
	deadline := time.Now().Add(time.Duration(seconds) * time.Second)
	for missing := expected; missing > 0; {
		if time.Now().After(deadline) {
			return fmt.Errorf("%d of %d messages missing", missing, expected)
		}
		request, err := c.Poll(context.Background(), time.Second)
		if consumer.IsNoNewMsgError(err) {
			continue
		}
		if err != nil {
			return err
		}
		for _, m := range request.GetMsgList() {
			printLine(describe(m))
			missing--
		}
		c.ACK(context.Background(), request, consumer.ConsumeSuccess)
	}
	return nil
}

// pull prints the result of one pull that does not wait, then a line per message.
func pull() error {
	queue := &primitive.MessageQueue{Topic: words[2], BrokerName: text("broker", ""), QueueId: number(words[3])}
	c, err := pullConsumer(text("group", "driver-pull"))
	if err != nil {
		return err
	}
	defer func() { _ = c.Shutdown() }()
	result, err := c.PullFrom(context.Background(), queue, int64(number(words[4])), number(words[5]))
	if err != nil {
		return err
	}
	names := map[primitive.PullStatus]string{
		primitive.PullFound: "FOUND", primitive.PullNoNewMsg: "NO_NEW_MSG",
		primitive.PullNoMsgMatched: "NO_MATCHED_MSG", primitive.PullOffsetIllegal: "OFFSET_ILLEGAL",
	}
	printLine(map[string]any{
		"status": names[result.Status], "next": result.NextBeginOffset, "min": result.MinOffset, "max": result.MaxOffset,
	})
	for _, m := range result.GetMessageExts() {
		printLine(describe(m))
	}
	return nil
}

func pullConsumer(group string) (rocketmq.PullConsumer, error) {
	words[3] = group
	c, err := rocketmq.NewPullConsumer(consumerOptions()...)
	if err != nil {
		return nil, err
	}
	selector := consumer.MessageSelector{Type: consumer.TAG, Expression: text("tag", "*")}
	if err := c.Subscribe(words[2], selector); err != nil {
		return nil, err
	}
	return c, c.Start()
}

func wait(arrived <-chan int, expected int, timeout time.Duration) error {
	stop := make(chan os.Signal, 1)
	signal.Notify(stop, syscall.SIGTERM, syscall.SIGINT)
	deadline := time.After(timeout)
	for missing := expected; missing > 0; {
		select {
		case n := <-arrived:
			missing -= n
		case <-deadline:
			return fmt.Errorf("%d of %d messages missing", missing, expected)
		case <-stop:
			return errors.New("stopped")
		}
	}
	return nil
}

func producerOptions() []producer.Option {
	chosen := []producer.Option{
		producer.WithNsResolver(primitive.NewPassthroughResolver([]string{words[1]})),
		producer.WithGroupName(text("group", "driver-producer")),
		producer.WithRetry(option("retry", 2)),
		producer.WithSendMsgTimeout(time.Duration(option("timeout", 3000)) * time.Millisecond),
		producer.WithCompressMsgBodyOverHowmuch(option("compress-over", 4096)),
	}
	if has("namespace") {
		chosen = append(chosen, producer.WithNamespace(options["namespace"]))
	}
	if has("access-key") {
		chosen = append(chosen, producer.WithCredentials(credentials()))
	}
	return chosen
}

func consumerOptions() []consumer.Option {
	chosen := []consumer.Option{
		consumer.WithNsResolver(primitive.NewPassthroughResolver([]string{words[1]})),
		consumer.WithGroupName(words[3]),
		consumer.WithConsumerOrder(has("orderly")),
		consumer.WithConsumeMessageBatchMaxSize(option("consume-batch", 1)),
		consumer.WithPullBatchSize(int32(option("pull-batch", 32))),
	}
	if text("from", "first") == "first" {
		chosen = append(chosen, consumer.WithConsumeFromWhere(consumer.ConsumeFromFirstOffset))
	} else {
		chosen = append(chosen, consumer.WithConsumeFromWhere(consumer.ConsumeFromLastOffset))
	}
	if has("broadcast") {
		chosen = append(chosen, consumer.WithConsumerModel(consumer.BroadCasting))
	}
	if has("max-reconsume") {
		chosen = append(chosen, consumer.WithMaxReconsumeTimes(int32(option("max-reconsume", 16))))
	}
	if has("namespace") {
		chosen = append(chosen, consumer.WithNamespace(options["namespace"]))
	}
	if has("access-key") {
		chosen = append(chosen, consumer.WithCredentials(credentials()))
	}
	return chosen
}

func credentials() primitive.Credentials {
	return primitive.Credentials{AccessKey: options["access-key"], SecretKey: options["secret-key"]}
}

func message(i int) *primitive.Message {
	body := text("body", "message-") + strconv.Itoa(i)
	for len(body) < option("size", 0) {
		body += string(rune('a' + len(body)%26))
	}
	m := primitive.NewMessage(words[2], []byte(body))
	if has("tag") {
		tags := strings.Split(options["tag"], ",")
		m.WithTag(tags[i%len(tags)])
	}
	if has("keys") {
		m.WithKeys([]string{options["keys"] + strconv.Itoa(i)})
	}
	if has("delay") {
		m.WithDelayTimeLevel(option("delay", 0))
	}
	for _, pair := range strings.Split(options["property"], ",") {
		if name, value, found := strings.Cut(pair, "="); found {
			m.WithProperty(name, strings.ReplaceAll(value, "{i}", strconv.Itoa(i)))
		}
	}
	return m
}

func describe(m *primitive.MessageExt) map[string]any {
	return map[string]any{
		"msgId": m.MsgId, "offsetMsgId": m.OffsetMsgId, "body": string(m.Body), "topic": m.Topic,
		"tags": m.GetTags(), "keys": m.GetKeys(), "queueId": m.Queue.QueueId, "broker": m.Queue.BrokerName,
		"queueOffset": m.QueueOffset, "commitLogOffset": m.CommitLogOffset, "storeSize": m.StoreSize,
		"flag": m.Flag, "sysFlag": m.SysFlag, "bornTimestamp": m.BornTimestamp, "storeTimestamp": m.StoreTimestamp,
		"bornHost": m.BornHost, "storeHost": m.StoreHost, "reconsumeTimes": m.ReconsumeTimes,
		"preparedTransactionOffset": m.PreparedTransactionOffset, "transactionId": m.TransactionId,
		"properties": m.GetProperties(),
	}
}

func printResult(result *primitive.SendResult) {
	names := map[primitive.SendStatus]string{
		primitive.SendOK: "SEND_OK", primitive.SendFlushDiskTimeout: "FLUSH_DISK_TIMEOUT",
		primitive.SendFlushSlaveTimeout: "FLUSH_SLAVE_TIMEOUT", primitive.SendSlaveNotAvailable: "SLAVE_NOT_AVAILABLE",
	}
	status, known := names[result.Status]
	if !known {
		status = strconv.Itoa(int(result.Status))
	}
	printLine(map[string]any{
		"msgId": result.MsgID, "offsetMsgId": result.OffsetMsgID, "broker": result.MessageQueue.BrokerName,
		"queueId": result.MessageQueue.QueueId, "queueOffset": result.QueueOffset, "sendStatus": status,
		"transactionId": result.TransactionID, "regionId": result.RegionID,
	})
}

func printFailure(err error) {
	printLine(map[string]any{"error": fmt.Sprintf("%T", err), "code": nil, "message": err.Error()})
}

func printLine(line map[string]any) {
	output.Lock()
	defer output.Unlock()
	encoder := json.NewEncoder(os.Stdout)
	encoder.SetEscapeHTML(false)
	_ = encoder.Encode(line)
}

func has(name string) bool {
	_, given := options[name]
	return given
}

func text(name, otherwise string) string {
	if has(name) {
		return options[name]
	}
	return otherwise
}

func option(name string, otherwise int) int {
	if has(name) {
		return number(options[name])
	}
	return otherwise
}

func number(text string) int {
	n, err := strconv.Atoi(text)
	if err != nil {
		panic(err)
	}
	return n
}
