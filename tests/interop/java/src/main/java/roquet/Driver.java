package roquet;

import java.io.BufferedReader;
import java.io.ByteArrayOutputStream;
import java.io.IOException;
import java.io.InputStreamReader;
import java.io.PrintStream;
import java.lang.reflect.Method;
import java.nio.charset.StandardCharsets;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.HashMap;
import java.util.HashSet;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.Set;
import java.util.TreeMap;
import java.util.concurrent.ConcurrentHashMap;
import java.util.concurrent.CountDownLatch;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.atomic.AtomicInteger;
import org.apache.rocketmq.acl.common.AclClientRPCHook;
import org.apache.rocketmq.acl.common.SessionCredentials;
import org.apache.rocketmq.client.ClientConfig;
import org.apache.rocketmq.client.consumer.DefaultLitePullConsumer;
import org.apache.rocketmq.client.consumer.DefaultMQPullConsumer;
import org.apache.rocketmq.client.consumer.DefaultMQPushConsumer;
import org.apache.rocketmq.client.consumer.MessageSelector;
import org.apache.rocketmq.client.consumer.PullResult;
import org.apache.rocketmq.client.consumer.listener.ConsumeConcurrentlyStatus;
import org.apache.rocketmq.client.consumer.listener.ConsumeOrderlyStatus;
import org.apache.rocketmq.client.consumer.listener.MessageListenerConcurrently;
import org.apache.rocketmq.client.consumer.listener.MessageListenerOrderly;
import org.apache.rocketmq.client.consumer.rebalance.AllocateMessageQueueAveragely;
import org.apache.rocketmq.client.exception.MQBrokerException;
import org.apache.rocketmq.client.exception.MQClientException;
import org.apache.rocketmq.client.exception.RequestTimeoutException;
import org.apache.rocketmq.client.producer.DefaultMQProducer;
import org.apache.rocketmq.client.producer.LocalTransactionState;
import org.apache.rocketmq.client.producer.SendCallback;
import org.apache.rocketmq.client.producer.SendResult;
import org.apache.rocketmq.client.producer.TransactionListener;
import org.apache.rocketmq.client.producer.TransactionMQProducer;
import org.apache.rocketmq.client.producer.TransactionSendResult;
import org.apache.rocketmq.client.utils.MessageUtil;
import org.apache.rocketmq.common.consumer.ConsumeFromWhere;
import org.apache.rocketmq.common.message.Message;
import org.apache.rocketmq.common.message.MessageClientExt;
import org.apache.rocketmq.common.message.MessageExt;
import org.apache.rocketmq.common.message.MessageQueue;
import org.apache.rocketmq.remoting.RPCHook;
import org.apache.rocketmq.tools.command.MQAdminStartup;

/**
 * Apache's Java client on a command line: one JSON object per line on standard output, notes on standard error.
 *
 * Compiled once against 4.9 and run with 4.9 and 5.x clients, so a class that moved between them is reached by name.
 */
public final class Driver {
    private static final Set<String> SWITCHES = new HashSet<>(Arrays.asList("oneway", "async", "orderly", "broadcast"));
    private static final PrintStream OUT = new PrintStream(System.out, true, StandardCharsets.UTF_8);

    private final List<String> words = new ArrayList<>();
    private final Map<String, String> options = new HashMap<>();

    public static void main(String[] args) throws IOException {
        int status = args[0].equals("session") ? session() : execute(args);
        OUT.flush();
        Runtime.getRuntime().halt(status);
    }

    private static int execute(String[] args) {
        try {
            return new Driver(args).run();
        } catch (Throwable failure) {
            failure.printStackTrace();
            printFailure(failure);
            return 1;
        }
    }

    /** One command after the other: each is a line of standard input with tabs between its words. */
    private static int session() throws IOException {
        BufferedReader commands = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
        note("started");
        for (String line = commands.readLine(); line != null; line = commands.readLine()) {
            Map<String, Object> ended = new LinkedHashMap<>();
            ended.put("ended", execute(line.split("\t")));
            print(ended);
        }
        return 0;
    }

    private Driver(String[] args) {
        for (int i = 0; i < args.length; i++) {
            if (!args[i].startsWith("--")) {
                words.add(args[i]);
            } else if (SWITCHES.contains(args[i].substring(2))) {
                options.put(args[i].substring(2), "true");
            } else {
                options.put(args[i].substring(2), args[++i]);
            }
        }
    }

    private int run() throws Exception {
        switch (words.get(0)) {
            case "produce":
                return has("transaction") ? produceTransactions() : produce();
            case "consume":
                return consume();
            case "lite":
                return consumeLite();
            case "pull":
                return pull();
            case "offsets":
                return offsets();
            case "view":
                return view();
            case "query":
                return query();
            case "request":
                return request();
            case "reply":
                return reply();
            case "admin":
                return admin();
            default:
                throw new IllegalArgumentException("unknown command " + words.get(0));
        }
    }

    // ---- producing: NS TOPIC COUNT

    private int produce() throws Exception {
        DefaultMQProducer producer = new DefaultMQProducer(text("group", "driver-producer"), hook());
        configureSends(producer);
        producer.start();
        int failures;
        if (has("async")) {
            failures = produceAsync(producer);
        } else if (has("batch")) {
            failures = produceBatches(producer);
        } else {
            failures = produceOneByOne(producer);
        }
        TimeUnit.MILLISECONDS.sleep(number("linger", has("oneway") ? 500 : 0));
        producer.shutdown();
        return failures == 0 ? 0 : 1;
    }

    private int produceOneByOne(DefaultMQProducer producer) throws InterruptedException {
        AtomicInteger next = new AtomicInteger();
        AtomicInteger failures = new AtomicInteger();
        List<Thread> threads = new ArrayList<>();
        for (int n = 0; n < number("threads", 1); n++) {
            threads.add(new Thread(() -> {
                try {
                    for (int i = next.getAndIncrement(); i < count(); i = next.getAndIncrement()) {
                        failures.addAndGet(produceOne(producer, i) ? 0 : 1);
                    }
                } catch (InterruptedException stop) {
                    Thread.currentThread().interrupt();
                }
            }));
        }
        threads.forEach(Thread::start);
        for (Thread thread : threads) {
            thread.join();
        }
        return failures.get();
    }

    private boolean produceOne(DefaultMQProducer producer, int i) throws InterruptedException {
        try {
            Message message = message(i);
            MessageQueue queue = wantedQueue(producer);
            if (has("oneway")) {
                if (queue == null) {
                    producer.sendOneway(message);
                } else {
                    producer.sendOneway(message, queue);
                }
            } else {
                printResult(queue == null ? producer.send(message) : producer.send(message, queue));
            }
            return true;
        } catch (Exception failure) {
            printFailure(failure);
            return false;
        } finally {
            TimeUnit.MILLISECONDS.sleep(number("pause", 0));
        }
    }

    private int produceBatches(DefaultMQProducer producer) throws Exception {
        int failures = 0;
        int size = number("batch", 1);
        for (int from = 0; from < count(); from += size) {
            List<Message> batch = new ArrayList<>();
            for (int i = from; i < Math.min(count(), from + size); i++) {
                batch.add(message(i));
            }
            try {
                MessageQueue queue = wantedQueue(producer);
                printResult(queue == null ? producer.send(batch) : producer.send(batch, queue));
            } catch (Exception failure) {
                failures++;
                printFailure(failure);
            }
        }
        return failures;
    }

    private int produceAsync(DefaultMQProducer producer) throws Exception {
        AtomicInteger failures = new AtomicInteger();
        CountDownLatch open = new CountDownLatch(count());
        SendCallback callback = new SendCallback() {
            @Override
            public void onSuccess(SendResult result) {
                printResult(result);
                open.countDown();
            }

            @Override
            public void onException(Throwable failure) {
                failures.incrementAndGet();
                printFailure(failure);
                open.countDown();
            }
        };
        for (int i = 0; i < count(); i++) {
            producer.send(message(i), callback);
        }
        return open.await(60, TimeUnit.SECONDS) ? failures.get() : 1;
    }

    /** --transaction and --check: what the local branch and the later check answer (commit, rollback, unknown). */
    private int produceTransactions() throws Exception {
        TransactionMQProducer producer = new TransactionMQProducer(text("group", "driver-producer"), hook());
        configureSends(producer);
        producer.setTransactionListener(new TransactionListener() {
            @Override
            public LocalTransactionState executeLocalTransaction(Message message, Object argument) {
                return verdict(text("transaction", "commit"));
            }

            @Override
            public LocalTransactionState checkLocalTransaction(MessageExt message) {
                Map<String, Object> line = describe(message);
                line.put("checked", text("check", "commit"));
                print(line);
                return verdict(text("check", "commit"));
            }
        });
        producer.start();
        for (int i = 0; i < count(); i++) {
            TransactionSendResult result = producer.sendMessageInTransaction(message(i), null);
            Map<String, Object> line = describe(result);
            line.put("localState", String.valueOf(result.getLocalTransactionState()));
            print(line);
        }
        TimeUnit.MILLISECONDS.sleep(number("linger", 500));
        producer.shutdown();
        return 0;
    }

    static LocalTransactionState verdict(String name) {
        switch (name) {
            case "commit":
                return LocalTransactionState.COMMIT_MESSAGE;
            case "rollback":
                return LocalTransactionState.ROLLBACK_MESSAGE;
            default:
                return LocalTransactionState.UNKNOW;
        }
    }

    private Message message(int i) {
        StringBuilder body = new StringBuilder(text("body", "message-") + i);
        int size = number("size", 0);
        while (body.length() < size) {
            body.append((char) ('a' + body.length() % 26));
        }
        Message message = new Message(topic(), body.toString().getBytes(StandardCharsets.UTF_8));
        if (has("tag")) {
            String[] tags = text("tag", "").split(",");
            message.setTags(tags[i % tags.length]);
        }
        if (has("keys")) {
            message.setKeys(text("keys", "") + i);
        }
        if (has("delay")) {
            message.setDelayTimeLevel(number("delay", 0));
        }
        if (has("flag")) {
            message.setFlag(number("flag", 0));
        }
        if (has("wait")) {
            message.setWaitStoreMsgOK(Boolean.parseBoolean(text("wait", "true")));
        }
        for (String pair : text("property", "").split(",")) {
            if (!pair.isEmpty()) {
                message.putUserProperty(pair.split("=", 2)[0], pair.split("=", 2)[1].replace("{i}", "" + i));
            }
        }
        return message;
    }

    private MessageQueue wantedQueue(DefaultMQProducer producer) throws MQClientException {
        if (!has("queue")) {
            return null;
        }
        return find(producer.fetchPublishMessageQueues(topic()), number("queue", 0));
    }

    private MessageQueue find(Iterable<MessageQueue> queues, int queueId) {
        for (MessageQueue queue : queues) {
            if (queue.getQueueId() == queueId && queue.getBrokerName().equals(text("broker", queue.getBrokerName()))) {
                return queue;
            }
        }
        throw new IllegalArgumentException("no queue " + queueId + " in " + queues);
    }

    // ---- consuming: NS TOPIC GROUP EXPECTED TIMEOUT_S

    private int consume() throws Exception {
        DefaultMQPushConsumer consumer =
            new DefaultMQPushConsumer(words.get(3), hook(), new AllocateMessageQueueAveragely());
        configure(consumer);
        consumer.setConsumeFromWhere(ConsumeFromWhere.valueOf(
            "CONSUME_FROM_" + text("from", "first").toUpperCase() + (text("from", "").equals("timestamp") ? "" : "_OFFSET")));
        if (has("timestamp")) {
            consumer.setConsumeTimestamp(text("timestamp", ""));
        }
        if (has("broadcast")) {
            setMessageModel(consumer, "BROADCASTING");
        }
        if (has("max-reconsume")) {
            consumer.setMaxReconsumeTimes(number("max-reconsume", 16));
        }
        if (has("threads")) {
            consumer.setConsumeThreadMin(number("threads", 20));
            consumer.setConsumeThreadMax(number("threads", 20));
        }
        consumer.setConsumeMessageBatchMaxSize(number("consume-batch", 1));
        consumer.setPullBatchSize(number("pull-batch", 32));
        consumer.setPullThresholdForQueue(number("cache", 1000));
        if (has("sql")) {
            consumer.subscribe(topic(), MessageSelector.bySql(text("sql", "")));
        } else {
            consumer.subscribe(topic(), text("tag", "*"));
        }
        CountDownLatch open = new CountDownLatch(Integer.parseInt(words.get(4)));
        Map<String, Integer> seen = new ConcurrentHashMap<>();
        if (has("orderly")) {
            consumer.registerMessageListener((MessageListenerOrderly) (messages, context) ->
                accept(messages, seen, open)
                    ? ConsumeOrderlyStatus.SUCCESS : ConsumeOrderlyStatus.SUSPEND_CURRENT_QUEUE_A_MOMENT);
        } else {
            consumer.registerMessageListener((MessageListenerConcurrently) (messages, context) ->
                accept(messages, seen, open)
                    ? ConsumeConcurrentlyStatus.CONSUME_SUCCESS : ConsumeConcurrentlyStatus.RECONSUME_LATER);
        }
        Runtime.getRuntime().addShutdownHook(new Thread(consumer::shutdown));
        consumer.start();
        note("started");
        boolean complete = open.await(Long.parseLong(words.get(5)), TimeUnit.SECONDS);
        if (has("linger")) {
            linger(consumer);
        }
        consumer.shutdown();
        return complete ? 0 : 1;
    }

    /**
     * Let the last messages count as consumed, and say so once before the shutdown says it again: of the first offsets
     * of a new group that Apache's broker is told at one time, by two of its threads, one may get lost.
     */
    private void linger(DefaultMQPushConsumer consumer) throws Exception {
        TimeUnit.MILLISECONDS.sleep(number("linger", 0));
        consumer.getDefaultMQPushConsumerImpl().persistConsumerOffset();
        TimeUnit.MILLISECONDS.sleep(number("linger", 0));
    }

    /** False while any message of the list is still within its first --fail deliveries. */
    private boolean accept(List<MessageExt> messages, Map<String, Integer> seen, CountDownLatch open) {
        boolean accepted = true;
        for (MessageExt message : messages) {
            int delivery = seen.merge(message.getMsgId(), 1, Integer::sum);
            Map<String, Object> line = describe(message);
            line.put("delivery", delivery);
            print(line);
            accepted &= delivery > number("fail", 0);
        }
        try {
            TimeUnit.MILLISECONDS.sleep(number("pause", 0));
        } catch (InterruptedException stop) {
            Thread.currentThread().interrupt();
        }
        for (int i = 0; accepted && i < messages.size(); i++) {
            open.countDown();
        }
        return accepted;
    }

    private int consumeLite() throws Exception {
        DefaultLitePullConsumer consumer = new DefaultLitePullConsumer(words.get(3), hook());
        configure(consumer);
        consumer.setConsumeFromWhere(ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET);
        consumer.subscribe(topic(), text("tag", "*"));
        Runtime.getRuntime().addShutdownHook(new Thread(consumer::shutdown));
        consumer.start();
        note("started");
        int missing = Integer.parseInt(words.get(4));
        long deadline = System.nanoTime() + TimeUnit.SECONDS.toNanos(Long.parseLong(words.get(5)));
        while (missing > 0 && System.nanoTime() < deadline) {
            for (MessageExt message : consumer.poll(500)) {
                print(describe(message));
                missing--;
            }
        }
        consumer.commitSync();
        consumer.shutdown();
        return missing <= 0 ? 0 : 1;
    }

    /** 4.9 and 5.x keep the enum in different packages. */
    static void setMessageModel(DefaultMQPushConsumer consumer, String name) throws Exception {
        for (Method method : consumer.getClass().getMethods()) {
            if (method.getName().equals("setMessageModel")) {
                for (Object constant : method.getParameterTypes()[0].getEnumConstants()) {
                    if (constant.toString().equals(name)) {
                        method.invoke(consumer, constant);
                    }
                }
            }
        }
    }

    // ---- single questions

    /** NS TOPIC QUEUE OFFSET MAX: one pull that does not wait. */
    private int pull() throws Exception {
        DefaultMQPullConsumer consumer = pullConsumer();
        MessageQueue queue = find(consumer.fetchSubscribeMessageQueues(topic()), Integer.parseInt(words.get(3)));
        long offset = Long.parseLong(words.get(4));
        PullResult result = consumer.pull(queue, text("tag", "*"), offset, Integer.parseInt(words.get(5)));
        Map<String, Object> line = new LinkedHashMap<>();
        line.put("status", result.getPullStatus().name());
        line.put("nextBeginOffset", result.getNextBeginOffset());
        line.put("minOffset", result.getMinOffset());
        line.put("maxOffset", result.getMaxOffset());
        print(line);
        if (result.getMsgFoundList() != null) {
            result.getMsgFoundList().forEach(message -> print(describe(message)));
        }
        consumer.shutdown();
        return 0;
    }

    /** NS TOPIC: what the broker says of every queue; --timestamp MS adds a search by store time. */
    private int offsets() throws Exception {
        DefaultMQPullConsumer consumer = pullConsumer();
        for (MessageQueue queue : consumer.fetchSubscribeMessageQueues(topic())) {
            Map<String, Object> line = new LinkedHashMap<>();
            line.put("broker", queue.getBrokerName());
            line.put("queueId", queue.getQueueId());
            line.put("minOffset", consumer.minOffset(queue));
            line.put("maxOffset", consumer.maxOffset(queue));
            line.put("earliestStoreTimestamp", consumer.earliestMsgStoreTime(queue));
            line.put("committed", consumer.fetchConsumeOffset(queue, true));
            if (has("timestamp")) {
                line.put("searched", consumer.searchOffset(queue, Long.parseLong(text("timestamp", "0"))));
            }
            print(line);
        }
        consumer.shutdown();
        return 0;
    }

    /** NS TOPIC ID: by offset message id or by unique key. */
    private int view() throws Exception {
        DefaultMQPullConsumer consumer = pullConsumer();
        print(describe(consumer.viewMessage(topic(), words.get(3))));
        consumer.shutdown();
        return 0;
    }

    /** NS TOPIC KEY */
    private int query() throws Exception {
        DefaultMQPullConsumer consumer = pullConsumer();
        consumer.queryMessage(topic(), words.get(3), number("max", 32), 0, Long.MAX_VALUE).getMessageList()
            .forEach(message -> print(describe(message)));
        consumer.shutdown();
        return 0;
    }

    private DefaultMQPullConsumer pullConsumer() throws MQClientException {
        DefaultMQPullConsumer consumer = new DefaultMQPullConsumer(text("group", "driver-pull"), hook());
        configure(consumer);
        consumer.start();
        return consumer;
    }

    // ---- request and reply

    /** NS TOPIC COUNT: prints each reply. */
    private int request() throws Exception {
        DefaultMQProducer producer = new DefaultMQProducer(text("group", "driver-producer"), hook());
        configure(producer);
        producer.start();
        int failures = 0;
        for (int i = 0; i < count(); i++) {
            try {
                Message reply = producer.request(message(i), number("timeout", 10_000));
                Map<String, Object> line = new LinkedHashMap<>();
                line.put("body", new String(reply.getBody(), StandardCharsets.UTF_8));
                line.put("properties", new TreeMap<>(reply.getProperties()));
                print(line);
            } catch (Exception failure) {
                failures++;
                printFailure(failure);
            }
        }
        producer.shutdown();
        return failures == 0 ? 0 : 1;
    }

    /** NS TOPIC GROUP EXPECTED TIMEOUT_S: answers every request with its body in upper case. */
    private int reply() throws Exception {
        DefaultMQProducer producer = new DefaultMQProducer(text("group", "driver-reply"), hook());
        configure(producer);
        producer.start();
        DefaultMQPushConsumer consumer =
            new DefaultMQPushConsumer(words.get(3), hook(), new AllocateMessageQueueAveragely());
        configure(consumer);
        consumer.setConsumeFromWhere(ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET);
        consumer.subscribe(topic(), "*");
        CountDownLatch open = new CountDownLatch(Integer.parseInt(words.get(4)));
        consumer.registerMessageListener((MessageListenerConcurrently) (messages, context) -> {
            for (MessageExt message : messages) {
                try {
                    String body = new String(message.getBody(), StandardCharsets.UTF_8).toUpperCase();
                    printResult(producer.send(
                        MessageUtil.createReplyMessage(message, body.getBytes(StandardCharsets.UTF_8)), 3000));
                    open.countDown();
                } catch (Exception failure) {
                    printFailure(failure);
                }
            }
            return ConsumeConcurrentlyStatus.CONSUME_SUCCESS;
        });
        consumer.start();
        note("started");
        boolean complete = open.await(Long.parseLong(words.get(5)), TimeUnit.SECONDS);
        consumer.shutdown();
        producer.shutdown();
        return complete ? 0 : 1;
    }

    // ---- mqadmin

    /** NS COMMAND ARGUMENT...: what the command printed; mqadmin itself tells of a failure in `err` only. */
    private int admin() {
        PrintStream out = System.out;
        PrintStream err = System.err;
        ByteArrayOutputStream said = new ByteArrayOutputStream();
        ByteArrayOutputStream complained = new ByteArrayOutputStream();
        System.setProperty("rocketmq.namesrv.addr", words.get(1));
        System.setOut(new PrintStream(said, true, StandardCharsets.UTF_8));
        System.setErr(new PrintStream(complained, true, StandardCharsets.UTF_8));
        try {
            MQAdminStartup.main0(words.subList(2, words.size()).toArray(new String[0]), null);
        } finally {
            System.setOut(out);
            System.setErr(err);
        }
        Map<String, Object> line = new LinkedHashMap<>();
        line.put("out", said.toString(StandardCharsets.UTF_8));
        line.put("err", complained.toString(StandardCharsets.UTF_8));
        print(line);
        return 0;
    }

    // ---- shared

    private void configure(ClientConfig client) {
        client.setNamesrvAddr(words.get(1));
        client.setPollNameServerInterval(number("poll", 30_000));
        client.setHeartbeatBrokerInterval(number("heartbeat", 30_000));
        client.setMqClientApiTimeout(number("api-timeout", 3_000));
        if (has("instance")) {
            client.setInstanceName(text("instance", ""));
        }
        if (has("namespace")) {
            client.setNamespace(text("namespace", ""));
        }
        if (has("vip")) {
            client.setVipChannelEnabled(Boolean.parseBoolean(text("vip", "false")));
        }
    }

    private void configureSends(DefaultMQProducer producer) {
        configure(producer);
        producer.setSendMsgTimeout(number("timeout", 3000));
        producer.setRetryTimesWhenSendFailed(number("retry", 2));
        producer.setMaxMessageSize(number("max-size", 4 * 1024 * 1024));
        producer.setCompressMsgBodyOverHowmuch(number("compress-over", 4096));
    }

    private RPCHook hook() {
        return has("access-key")
            ? new AclClientRPCHook(new SessionCredentials(text("access-key", ""), text("secret-key", ""))) : null;
    }

    private String topic() {
        return words.get(2);
    }

    private int count() {
        return Integer.parseInt(words.get(3));
    }

    private boolean has(String option) {
        return options.containsKey(option);
    }

    private String text(String option, String otherwise) {
        return options.getOrDefault(option, otherwise);
    }

    private int number(String option, int otherwise) {
        return has(option) ? Integer.parseInt(options.get(option)) : otherwise;
    }

    static Map<String, Object> describe(SendResult result) {
        Map<String, Object> line = new LinkedHashMap<>();
        line.put("msgId", result.getMsgId());
        line.put("offsetMsgId", result.getOffsetMsgId());
        line.put("broker", result.getMessageQueue() == null ? null : result.getMessageQueue().getBrokerName());
        line.put("queueId", result.getMessageQueue() == null ? null : result.getMessageQueue().getQueueId());
        line.put("queueOffset", result.getQueueOffset());
        line.put("sendStatus", result.getSendStatus().name());
        line.put("transactionId", result.getTransactionId());
        line.put("regionId", result.getRegionId());
        return line;
    }

    static Map<String, Object> describe(MessageExt message) {
        Map<String, Object> line = new LinkedHashMap<>();
        line.put("msgId", message.getMsgId());
        line.put("offsetMsgId", message instanceof MessageClientExt
            ? ((MessageClientExt) message).getOffsetMsgId() : message.getMsgId());
        line.put("body", message.getBody() == null ? null : new String(message.getBody(), StandardCharsets.UTF_8));
        line.put("topic", message.getTopic());
        line.put("tags", message.getTags());
        line.put("keys", message.getKeys());
        line.put("broker", message.getBrokerName());
        line.put("queueId", message.getQueueId());
        line.put("queueOffset", message.getQueueOffset());
        line.put("commitLogOffset", message.getCommitLogOffset());
        line.put("storeSize", message.getStoreSize());
        line.put("flag", message.getFlag());
        line.put("sysFlag", message.getSysFlag());
        line.put("bornTimestamp", message.getBornTimestamp());
        line.put("storeTimestamp", message.getStoreTimestamp());
        line.put("bornHost", String.valueOf(message.getBornHost()));
        line.put("storeHost", String.valueOf(message.getStoreHost()));
        line.put("reconsumeTimes", message.getReconsumeTimes());
        line.put("preparedTransactionOffset", message.getPreparedTransactionOffset());
        line.put("transactionId", message.getTransactionId());
        line.put("properties", new TreeMap<>(message.getProperties()));
        return line;
    }

    private static void printResult(SendResult result) {
        print(describe(result));
    }

    private static void printFailure(Throwable failure) {
        Map<String, Object> line = new LinkedHashMap<>();
        line.put("error", failure.getClass().getSimpleName());
        line.put("code", responseCode(failure));
        line.put("message", failure.getMessage());
        print(line);
    }

    static Integer responseCode(Throwable failure) {
        if (failure instanceof MQBrokerException) {
            return ((MQBrokerException) failure).getResponseCode();
        }
        if (failure instanceof RequestTimeoutException) {
            return ((RequestTimeoutException) failure).getResponseCode();
        }
        return failure instanceof MQClientException ? ((MQClientException) failure).getResponseCode() : null;
    }

    static void note(String text) {
        System.err.println(text);
        System.err.flush();
    }

    static synchronized void print(Map<String, Object> line) {
        OUT.println(json(line));
    }

    private static String json(Object value) {
        if (value == null || value instanceof Number || value instanceof Boolean) {
            return String.valueOf(value);
        }
        if (value instanceof Map) {
            StringBuilder text = new StringBuilder();
            for (Map.Entry<?, ?> entry : ((Map<?, ?>) value).entrySet()) {
                text.append(text.length() == 0 ? "" : ",");
                text.append(json(String.valueOf(entry.getKey()))).append(':').append(json(entry.getValue()));
            }
            return "{" + text + "}";
        }
        if (value instanceof Iterable) {
            StringBuilder text = new StringBuilder();
            for (Object one : (Iterable<?>) value) {
                text.append(text.length() == 0 ? "" : ",").append(json(one));
            }
            return "[" + text + "]";
        }
        StringBuilder text = new StringBuilder("\"");
        for (char c : value.toString().toCharArray()) {
            if (c == '"' || c == '\\') {
                text.append('\\').append(c);
            } else if (c < 0x20) {
                text.append(String.format("\\u%04x", (int) c));
            } else {
                text.append(c);
            }
        }
        return text.append('"').toString();
    }
}
